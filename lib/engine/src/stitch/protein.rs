//! The protein whose windows are coming.

use plmkit_contract::{Column, Pooling, Reason, SequenceDigest, Span, VectorColumn, residue_of};

use super::{Blend, Moments, WeightedMean};

/// A protein put together.
#[derive(Debug, PartialEq)]
pub(crate) struct Whole {
    /// For each column asked for, as many as [`Column::values`] says of all residues.
    pub(crate) values: Vec<Vec<f32>>,
    /// All its residues.
    pub(crate) residues: usize,
    pub(crate) origin: Stitched,
}

/// What a row put together from windows has in place of the key columns of the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stitched {
    /// The windows that it was put together from.
    pub(crate) n_windows: u32,
    /// Digest of all residues.
    pub(crate) digest: SequenceDigest,
}

/// Puts one protein after the other together from its windows.
///
/// Where only pooled columns are asked for, it holds the residues of one window for each layer, whatever the length of
/// the protein.
#[derive(Debug)]
pub(crate) struct Stitcher {
    wanted: Vec<Column>,
    /// What is computed of each window.
    tracked: Vec<Column>,
    dim: usize,
    /// The protein whose last window has not come, or why it gets no values.
    open: Option<Result<Protein, Reason>>,
}

#[derive(Debug)]
struct Protein {
    /// One for each of `tracked`.
    tracks: Vec<Track>,
    residues: Vec<u8>,
    n_windows: u32,
}

/// A column of the windows, on its way to columns of the protein.
#[derive(Debug)]
enum Track {
    /// A vector for each window.
    Windows(WeightedMean),
    /// A vector for each residue.
    Residues {
        blend: Blend,
        /// Where poolings of the layer are asked for.
        moments: Option<Moments>,
        /// Where the vectors themselves are asked for: `(residues so far, dim)`.
        kept: Option<Vec<f32>>,
    },
}

impl Stitcher {
    /// For these columns of whole proteins, by a model whose vectors have `dim` values. Contacts are not among them.
    pub(crate) fn new(wanted: &[Column], dim: usize) -> Self {
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
            dim,
            open: None,
        }
    }

    /// What is to be computed of each window.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.tracked
    }

    /// Whether the protein that `window` belongs to gets no values, whatever those of the window are.
    pub(crate) fn is_lost(&self, window: Span) -> bool {
        window.start > 0 && matches!(self.open, Some(Err(_)))
    }

    /// Adds the next window, in the order of [`WindowOrder`](super::Order): its tokens without `<cls>` and `<eos>`, and its
    /// values for each of [`columns`](Self::columns) or why it has none. After the last window of a protein, this is
    /// the protein, or why its first window without values has none.
    pub(crate) fn add(
        &mut self,
        window: Span,
        tokens: &[u8],
        values: Result<&[&[f32]], Reason>,
    ) -> Option<Result<Whole, Reason>> {
        let open = self.open.take().filter(|_| window.start > 0);
        let mut open = open.unwrap_or_else(|| Ok(self.protein()));
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

    /// One without windows.
    fn protein(&self) -> Protein {
        let tracks = self.tracked.iter().map(|&column| self.track(column));
        Protein {
            tracks: tracks.collect(),
            residues: Vec::new(),
            n_windows: 0,
        }
    }

    fn track(&self, column: Column) -> Track {
        let dim = column.values(1, self.dim);
        if matches!(column, Column::Pooled(_)) {
            return Track::Windows(WeightedMean::new(dim));
        }
        let pooled = |wanted: &&Column| **wanted != column && source(**wanted) == column;
        Track::Residues {
            blend: Blend::new(dim),
            moments: self.wanted.iter().find(pooled).map(|_| Moments::new(dim)),
            kept: self.wanted.contains(&column).then(Vec::new),
        }
    }
}

/// The column of the windows that a column of the protein is made from.
fn source(wanted: Column) -> Column {
    match wanted {
        Column::Pooled(VectorColumn {
            pool: Pooling::Mean | Pooling::Max | Pooling::Std,
            layer,
        }) => Column::Residues(layer),
        _ => wanted,
    }
}

impl Protein {
    fn add(&mut self, window: Span, tokens: &[u8], values: &[&[f32]]) {
        let range = window.start as usize..window.start as usize + tokens.len();
        self.n_windows += 1;
        let known = self.residues.len().saturating_sub(range.start);
        let unknown = tokens.iter().skip(known);
        self.residues
            .extend(unknown.filter_map(|&token| residue_of(token)));
        for (track, values) in self.tracks.iter_mut().zip(values) {
            match track {
                Track::Windows(mean) => mean.add(values, tokens.len() as f64),
                Track::Residues {
                    blend,
                    moments,
                    kept,
                } => blend.add(range.clone(), values, |vector| {
                    add_vector(moments.as_mut(), kept.as_mut(), vector);
                }),
            }
        }
    }

    fn finish(self, stitcher: &Stitcher) -> Whole {
        let mut values = vec![Vec::new(); stitcher.wanted.len()];
        for (track, &tracked) in self.tracks.into_iter().zip(&stitcher.tracked) {
            let (moments, mut own) = track.finish();
            let columns = stitcher.wanted.iter().zip(&mut values);
            for (&wanted, values) in columns.filter(|(wanted, _)| source(**wanted) == tracked) {
                *values = match (wanted, &moments) {
                    (Column::Pooled(column), Some(moments)) => {
                        moments.pooled(column.pool).unwrap_or_default()
                    }
                    _ => std::mem::take(&mut own),
                };
            }
        }
        Whole {
            values,
            residues: self.residues.len(),
            origin: Stitched {
                n_windows: self.n_windows,
                digest: SequenceDigest::new(&self.residues),
            },
        }
    }
}

impl Track {
    /// What is pooled, and the values of the column itself.
    fn finish(self) -> (Option<Moments>, Vec<f32>) {
        match self {
            Self::Windows(mean) => (None, mean.mean()),
            Self::Residues {
                blend,
                mut moments,
                mut kept,
            } => {
                blend.finish(|vector| add_vector(moments.as_mut(), kept.as_mut(), vector));
                (moments, kept.unwrap_or_default())
            }
        }
    }
}

/// Adds the vector of a residue, which is final.
fn add_vector(moments: Option<&mut Moments>, kept: Option<&mut Vec<f32>>, vector: &[f32]) {
    if let Some(moments) = moments {
        moments.add(vector);
    }
    if let Some(kept) = kept {
        kept.extend_from_slice(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIM: usize = 2;
    /// Ids of M K V L A.
    const TOKENS: [u8; 5] = [20, 15, 7, 4, 5];

    fn columns(names: &[&str]) -> Vec<Column> {
        let columns = names.iter().map(|name| name.parse());
        columns.collect::<Result<_, _>>().expect("columns")
    }

    fn window(start: u32, residues: usize) -> Span {
        Span {
            start,
            residues,
            length: 5,
            truncated: false,
        }
    }

    /// Adds a window whose residues have the values `from`, `from + 1`, … in both channels, and whose `<cls>` has `from`.
    fn add(stitcher: &mut Stitcher, window: Span, from: f32) -> Option<Result<Whole, Reason>> {
        let vectors: Vec<f32> = (0..window.residues)
            .flat_map(|residue| [from + residue as f32; DIM])
            .collect();
        let bos = [from; DIM];
        let values: Vec<&[f32]> = stitcher
            .columns()
            .iter()
            .map(|column| match column {
                Column::Pooled(_) => &bos[..],
                _ => &vectors[..],
            })
            .collect();
        let tokens = &TOKENS[window.start as usize..][..window.residues];
        stitcher.add(window, tokens, Ok(&values))
    }

    #[test]
    fn one_layer_is_computed_once_for_all_its_columns() {
        let wanted = columns(&["mean_4", "bos_4", "std_4", "max_2", "residues_4", "logits"]);
        let stitcher = Stitcher::new(&wanted, DIM);
        let expected = columns(&["residues_4", "bos_4", "residues_2", "logits"]);
        assert_eq!(stitcher.columns(), expected);
    }

    #[test]
    fn every_column_is_over_the_blended_residues() {
        let wanted = columns(&["mean_4", "max_4", "std_4", "bos_4", "residues_4"]);
        let mut stitcher = Stitcher::new(&wanted, DIM);
        assert_eq!(add(&mut stitcher, window(0, 3), 0.0), None);
        let whole = add(&mut stitcher, window(2, 3), 8.0).expect("the last");
        let whole = whole.expect("both windows have values");
        // Residue 2 has the value 2 in the first window and 8 in the second, where it is at an end of each.
        let both = |values: [f32; 5]| values.map(|value| [value; DIM]).concat();
        assert_eq!(whole.values[4], both([0.0, 1.0, 5.0, 9.0, 10.0]));
        assert_eq!(whole.values[0], [5.0; DIM]);
        assert_eq!(whole.values[1], [10.0; DIM]);
        assert_eq!(whole.values[2], [(82.0_f32 / 5.0).sqrt(); DIM]);
        assert_eq!(whole.values[3], [4.0; DIM], "three residues each");
        assert_eq!(whole.origin.n_windows, 2);
        assert_eq!(whole.origin.digest, SequenceDigest::new(b"MKVLA"));
    }

    #[test]
    fn a_window_without_values_costs_the_protein_its_own_and_no_other() {
        let wanted = columns(&["mean_4"]);
        let mut stitcher = Stitcher::new(&wanted, DIM);
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
