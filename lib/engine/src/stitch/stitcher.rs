//! Stitching the windows of one protein after the other.

use std::ops::Range;

use plmkit_contract::{Column, Pooling, Reason, RowSpan, Widths, residue_of};

use super::{Blend, Moments};
use crate::columns::Stitched;

/// Stitches proteins, one after the other.
///
/// If only pooled columns are requested, memory holds the residues of one window for each layer, whatever the length of the
/// protein.
#[derive(Debug)]
pub(crate) struct Stitcher {
    wanted: Vec<Column>,
    /// The columns to compute of each window.
    tracked: Vec<Column>,
    widths: Widths,
    /// The protein whose last window has not come, or why the protein gets no values.
    open: Option<Result<Protein, Reason>>,
}

#[derive(Debug)]
struct Protein {
    /// One for each tracked column.
    tracks: Vec<Track>,
    residues: Vec<u8>,
    n_windows: u32,
}

/// The state of one tracked column.
#[derive(Debug)]
struct Track {
    /// Present if the column has a vector for each residue, and not for each window.
    blend: Option<Blend>,
    /// Present if a pooling of these vectors is requested.
    moments: Option<Moments>,
    /// Present if the vectors of residues are requested: `(residues so far, dim)`.
    vectors: Option<Vec<f32>>,
}

impl Track {
    /// Adds a window with its values; or without, after the last window.
    fn add(&mut self, window: Option<(Range<usize>, &[f32])>) {
        let Self {
            blend,
            moments,
            vectors,
        } = self;
        let mut keep = |vector: &[f32], weight: f64| {
            if let Some(moments) = moments {
                moments.add(vector, weight);
            }
            if let Some(vectors) = vectors {
                vectors.extend_from_slice(vector);
            }
        };
        match (blend, window) {
            (Some(blend), Some((window, values))) => {
                blend.add(window, values, |vector| keep(vector, 1.0));
            }
            (Some(blend), None) => blend.finish(|vector| keep(vector, 1.0)),
            (None, Some((window, values))) => keep(values, window.len() as f64),
            (None, None) => {}
        }
    }
}

impl Stitcher {
    /// Stitches the columns `wanted`, without contacts, of a model whose vectors have these `widths`.
    pub(crate) fn new(wanted: &[Column], widths: Widths) -> Self {
        let mut tracked = Vec::new();
        for &column in wanted {
            let source = source(column);
            if !tracked.contains(&source) {
                tracked.push(source);
            }
        }
        Self {
            wanted: wanted.to_vec(),
            tracked,
            widths,
            open: None,
        }
    }

    /// The columns to compute of each window.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.tracked
    }

    /// Whether an earlier window of the same protein was rejected, so that `window` need not be computed.
    pub(crate) fn is_lost(&self, window: RowSpan) -> bool {
        window.start > 0 && matches!(self.open, Some(Err(_)))
    }

    /// Adds the next window, in an order that [`WindowOrder`](super::WindowOrder) accepts: its tokens without `<cls>` and
    /// `<eos>`, and its values for each of [`columns`](Self::columns), or why it has none. Returns the protein after its last window,
    /// with the values of each requested column, or the reason of its first rejected window.
    pub(crate) fn add(
        &mut self,
        window: RowSpan,
        tokens: &[u8],
        values: Result<Vec<&[f32]>, Reason>,
    ) -> Option<Result<Stitched, Reason>> {
        let open = self.open.take().filter(|_| window.start > 0);
        let mut open = open.unwrap_or_else(|| Ok(self.start_protein()));
        match (&mut open, values) {
            (Ok(protein), Ok(values)) => protein.add(window, tokens, values),
            (Ok(_), Err(reason)) => open = Err(reason),
            (Err(_), _) => {}
        }
        if window.is_last() {
            return Some(open.map(|protein| protein.finish(self)));
        }
        self.open = Some(open);
        None
    }

    fn start_protein(&self) -> Protein {
        let tracks = self.tracked.iter().map(|&column| {
            let dim = column.values(1, self.widths);
            let of_windows = matches!(column, Column::Pooled { .. });
            let mut wanted = self.wanted.iter();
            let pooled = wanted.any(|&wanted| wanted != column && source(wanted) == column);
            Track {
                blend: (!of_windows).then(|| Blend::new(dim)),
                moments: (pooled || of_windows).then(|| Moments::new(dim)),
                vectors: (!of_windows && self.wanted.contains(&column)).then(Vec::new),
            }
        });
        Protein {
            tracks: tracks.collect(),
            residues: Vec::new(),
            n_windows: 0,
        }
    }
}

/// Returns the column of the windows from which a column of the protein is made.
fn source(wanted: Column) -> Column {
    match wanted {
        Column::Pooled {
            pool: Pooling::Mean | Pooling::Max | Pooling::Std,
            layer,
        } => Column::Residues(layer),
        // The windows' own vectors, of which the mean is taken.
        Column::Pooled {
            pool: Pooling::Bos, ..
        }
        | Column::Residues(_)
        | Column::Logits
        | Column::LogProbs
        | Column::LogLikelihood
        | Column::Contacts => wanted,
    }
}

impl Protein {
    fn add(&mut self, window: RowSpan, tokens: &[u8], values: Vec<&[f32]>) {
        let range = window.start as usize..window.start as usize + tokens.len();
        self.n_windows += 1;
        let known = self.residues.len().saturating_sub(range.start);
        let unknown = tokens.iter().skip(known);
        self.residues
            .extend(unknown.filter_map(|&token| residue_of(token)));
        for (track, values) in self.tracks.iter_mut().zip(values) {
            track.add(Some((range.clone(), values)));
        }
    }

    fn finish(mut self, stitcher: &Stitcher) -> Stitched {
        self.tracks.iter_mut().for_each(|track| track.add(None));
        let values = stitcher.wanted.iter().map(|&wanted| {
            let is_source = |tracked: &Column| *tracked == source(wanted);
            let track = stitcher.tracked.iter().position(is_source);
            let track = track.and_then(|track| self.tracks.get_mut(track));
            track.map_or_else(Vec::new, |track| match (wanted, &track.moments) {
                (Column::Pooled { pool, .. }, Some(moments)) => moments.pooled(pool),
                _ => track.vectors.take().unwrap_or_default(),
            })
        });
        Stitched {
            values: values.collect(),
            letters: self.residues,
            n_windows: self.n_windows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIM: usize = 2;
    const WIDTHS: Widths = Widths {
        dim: DIM,
        logits: 33,
    };
    /// Ids of M K V L A.
    const TOKENS: [u8; 5] = [20, 15, 7, 4, 5];

    fn columns(names: &[&str]) -> Vec<Column> {
        let columns = names.iter().map(|name| name.parse());
        columns.collect::<Result<_, _>>().expect("columns")
    }

    fn window(start: u32, residues: usize) -> RowSpan {
        RowSpan {
            start,
            residues,
            length: 5,
            truncated: false,
        }
    }

    /// Adds a window whose residues have the values `from`, `from + 1`, … in both channels, and whose `<cls>` has `from`.
    fn add(
        stitcher: &mut Stitcher,
        window: RowSpan,
        from: f32,
    ) -> Option<Result<Stitched, Reason>> {
        let vectors: Vec<f32> = (0..window.residues)
            .flat_map(|residue| [from + residue as f32; DIM])
            .collect();
        let bos = [from; DIM];
        let values: Vec<&[f32]> = stitcher
            .columns()
            .iter()
            .map(|column| match column {
                Column::Pooled { .. } => &bos[..],
                _ => &vectors[..],
            })
            .collect();
        let tokens = &TOKENS[window.start as usize..][..window.residues];
        stitcher.add(window, tokens, Ok(values))
    }

    #[test]
    fn each_layer_is_computed_once_for_all_its_columns() {
        let wanted = columns(&["mean_4", "bos_4", "std_4", "max_2", "residues_4", "logits"]);
        let stitcher = Stitcher::new(&wanted, WIDTHS);
        let expected = columns(&["residues_4", "bos_4", "residues_2", "logits"]);
        assert_eq!(stitcher.columns(), expected);
    }

    #[test]
    fn every_column_is_over_the_blended_residues() {
        let wanted = columns(&["mean_4", "max_4", "std_4", "bos_4", "residues_4"]);
        let mut stitcher = Stitcher::new(&wanted, WIDTHS);
        assert_eq!(add(&mut stitcher, window(0, 3), 0.0), None);
        let protein = add(&mut stitcher, window(2, 3), 8.0).expect("the last");
        let protein = protein.expect("both windows have values");
        // Residue 2 has the value 2 in the first window and 8 in the second, where it is at an end of each.
        let both = |values: [f32; 5]| values.map(|value| [value; DIM]).concat();
        assert_eq!(protein.values[4], both([0.0, 1.0, 5.0, 9.0, 10.0]));
        assert_eq!(protein.values[0], [5.0; DIM]);
        assert_eq!(protein.values[1], [10.0; DIM]);
        assert_eq!(protein.values[2], [(82.0_f32 / 5.0).sqrt(); DIM]);
        assert_eq!(protein.values[3], [4.0; DIM], "three residues each");
        assert_eq!(protein.n_windows, 2);
        assert_eq!(protein.letters, b"MKVLA");
    }

    #[test]
    fn a_rejected_window_rejects_its_protein_and_no_other() {
        let wanted = columns(&["mean_4"]);
        let mut stitcher = Stitcher::new(&wanted, WIDTHS);
        assert!(!stitcher.is_lost(window(0, 2)));
        assert_eq!(add(&mut stitcher, window(0, 2), 0.0), None);
        let lost = stitcher.add(window(1, 3), &TOKENS[1..4], Err(Reason::NotFinite));
        assert_eq!(lost, None);
        assert!(stitcher.is_lost(window(3, 2)));
        let lost = stitcher.add(window(3, 2), &TOKENS[3..], Err(Reason::OutOfMemory));
        assert_eq!(lost, Some(Err(Reason::NotFinite)), "the first reason");

        assert!(!stitcher.is_lost(window(0, 4)));
        assert_eq!(add(&mut stitcher, window(0, 4), 1.0), None);
        assert!(matches!(add(&mut stitcher, window(3, 2), 1.0), Some(Ok(_))));
    }
}
