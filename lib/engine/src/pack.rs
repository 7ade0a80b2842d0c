//! A pack to rows of the output.

use plmkit_contract::{EmbeddingLayout, Reason, SequenceDigest, StoreDtype};
use plmkit_esm2::{Buffer, DeviceTimes, EsmError, Pending};

use crate::EngineError;
use crate::compute::{Begun, Computed, Embedder, buffers, storable};
use crate::plan::Job;
use crate::selection::Selection;
use crate::stitch::{Stitcher, Whole};

/// What became of a pack.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Embedded {
    /// The rows of the output.
    pub(crate) rows: Vec<OutputRow>,
    /// For each column the values of these rows, one after the other.
    pub(crate) values: Vec<Buffer<f32>>,
    /// The rows of the pack that would give a row of the output and have no values, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
    /// How many times sequences were computed in two halves because memory ran out.
    pub(crate) oom_splits: u64,
    /// How many sequences were computed again in f32.
    pub(crate) in_f32: u64,
    /// What a device took for it, where one did.
    pub(crate) times: Option<DeviceTimes>,
}

/// A row of the output.
#[derive(Debug, PartialEq)]
pub(crate) struct OutputRow {
    /// The row of the pack that it has its key from; of a protein put together, the last window.
    pub(crate) row: usize,
    /// The residues that it is about.
    pub(crate) residues: usize,
    /// Where it was put together from windows.
    pub(crate) stitched: Option<Stitched>,
}

/// What a row put together from windows has in place of the key of the last one.
#[derive(Debug, PartialEq)]
pub(crate) struct Stitched {
    pub(crate) n_windows: u32,
    /// Of the residues of the whole protein.
    pub(crate) digest: SequenceDigest,
}

/// Computes packs, and puts the windows of proteins together.
pub(crate) struct PackEmbedder<'a> {
    embedder: Embedder<'a>,
    layout: &'a EmbeddingLayout,
    stitcher: Stitcher,
}

impl<'a> PackEmbedder<'a> {
    /// For the rows of a file with the columns of `layout`.
    pub(crate) fn new(embedder: Embedder<'a>, layout: &'a EmbeddingLayout) -> Self {
        Self {
            embedder,
            layout,
            stitcher: Stitcher::new(&layout.columns, layout.dim),
        }
    }

    /// Asks for what a pack needs, but for its windows, so that a device computes it while the program goes on.
    pub(crate) fn begin(&self, job: &Job) -> Option<Result<Pending, EngineError>> {
        let (_, ordinary) = by_kind(job);
        let layout = self.layout;
        let selection = Selection::new(job, &ordinary, &layout.columns, layout.dtype);
        self.embedder.begin(&selection)
    }

    /// The rows that a pack gives, of which some may have been [begun](Self::begin); `None` once a stop was requested. The packs
    /// of an unfinished protein come one after the other.
    pub(crate) fn embed(
        &mut self,
        job: &Job,
        begun: Option<Begun>,
    ) -> Result<Option<Embedded>, EngineError> {
        match self.rows(job, begun) {
            Ok(embedded) => Ok(Some(embedded)),
            Err(EngineError::Model(EsmError::Stopped)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn rows(&mut self, job: &Job, begun: Option<Begun>) -> Result<Embedded, EngineError> {
        let (windows, ordinary) = by_kind(job);
        let (columns, dtype) = (&self.layout.columns, self.layout.dtype);
        let selection = Selection::new(job, &ordinary, columns, dtype);
        let computed = self.embedder.embed(&selection, begun)?;
        let mut embedded = Embedded::new(job, &ordinary, computed);
        let mut wholes = Vec::new();
        let ordinals = job.pack.ordinals();
        // One protein after the other: the values of all residues of a pack may not fit into memory at once.
        for run in windows.chunk_by(|&a, &b| ordinals[a] == ordinals[b]) {
            wholes.extend(self.stitch(job, run, &mut embedded)?);
        }
        if !wholes.is_empty() {
            embedded.insert(self.layout, wholes);
        }
        embedded.rejected.sort_unstable();
        Ok(embedded)
    }

    /// Computes windows of one protein; if the last one is among them, this is the protein with its row.
    fn stitch(
        &mut self,
        job: &Job,
        rows: &[usize],
        embedded: &mut Embedded,
    ) -> Result<Option<(usize, Whole)>, EngineError> {
        let lost = rows
            .first()
            .is_some_and(|&row| self.stitcher.is_lost(job.pack.span(row)));
        let columns = self.stitcher.columns().to_vec();
        let computed = if lost {
            Computed::default()
        } else {
            // Blending is in f32, whatever the type in which its results are stored.
            let selection = Selection::new(job, rows, &columns, StoreDtype::F32);
            self.embedder.embed(&selection, None)?
        };
        embedded.oom_splits += computed.oom_splits;
        embedded.in_f32 += computed.in_f32;
        if let Some(times) = computed.times {
            *embedded.times.get_or_insert_default() += times;
        }
        let mut values: Vec<&[f32]> = computed.values.iter().map(|values| &values[..]).collect();
        let mut rejected = computed.rejected.iter().peekable();
        for (sequence, &row) in rows.iter().enumerate() {
            let span = job.pack.span(row);
            let reject = rejected.next_if(|&&(rejected, _)| rejected == sequence);
            let own: Vec<&[f32]> = match reject {
                Some(_) => Vec::new(),
                None => values
                    .iter_mut()
                    .zip(&columns)
                    .map(|(values, column)| {
                        front(values, column.values(span.residues, self.layout.dim))
                    })
                    .collect(),
            };
            let own = reject.map_or(Ok(own.as_slice()), |&(_, reason)| Err(reason));
            let whole = self.stitcher.add(span, job.pack.residue_tokens(row), own);
            match whole.map(|whole| whole.and_then(|whole| self.storable(whole))) {
                Some(Ok(whole)) => return Ok(Some((row, whole))),
                Some(Err(reason)) => embedded.rejected.push((row, reason)),
                None => {}
            }
        }
        Ok(None)
    }

    fn storable(&self, whole: Whole) -> Result<Whole, Reason> {
        let dtype = self.layout.dtype;
        if whole.values.iter().all(|values| storable(values, dtype)) {
            Ok(whole)
        } else {
            Err(Reason::NotFinite)
        }
    }
}

/// The rows of a pack that are put together with others, and those that are not.
fn by_kind(job: &Job) -> (Vec<usize>, Vec<usize>) {
    (0..job.pack.sequences()).partition(|&row| job.is_window(row))
}

impl Embedded {
    /// Of the rows `ordinary`, each of which gives one.
    fn new(job: &Job, ordinary: &[usize], computed: Computed) -> Self {
        let rejected = computed.rejected.iter();
        let rejected: Vec<(usize, Reason)> = rejected
            .map(|&(sequence, reason)| (ordinary[sequence], reason))
            .collect();
        let mut without = rejected.iter().map(|&(row, _)| row).peekable();
        let kept = ordinary
            .iter()
            .filter(|&&row| without.next_if_eq(&row).is_none());
        let rows = kept.map(|&row| OutputRow {
            row,
            residues: job.pack.residues(row),
            stitched: None,
        });
        Self {
            rows: rows.collect(),
            values: computed.values,
            rejected,
            oom_splits: computed.oom_splits,
            in_f32: computed.in_f32,
            times: computed.times,
        }
    }

    /// Puts the rows of whole proteins between the others, in order.
    fn insert(&mut self, layout: &EmbeddingLayout, wholes: Vec<(usize, Whole)>) {
        let mut rows = std::mem::take(&mut self.rows).into_iter().peekable();
        let old = std::mem::take(&mut self.values);
        let mut left: Vec<&[f32]> = old.iter().map(|values| &values[..]).collect();
        self.values = buffers(layout.columns.len());
        let mut move_before = |end: usize, to: &mut Self| {
            while let Some(row) = rows.next_if(|row| row.row < end) {
                let columns = layout.columns.iter().zip(&mut left).zip(&mut to.values);
                for ((column, left), values) in columns {
                    values.extend_from_slice(front(left, column.values(row.residues, layout.dim)));
                }
                to.rows.push(row);
            }
        };
        for (row, whole) in wholes {
            move_before(row, self);
            for (values, own) in self.values.iter_mut().zip(&whole.values) {
                values.extend_from_slice(own);
            }
            self.rows.push(OutputRow {
                row,
                residues: whole.residues,
                stitched: Some(Stitched {
                    n_windows: whole.n_windows,
                    digest: whole.digest,
                }),
            });
        }
        move_before(usize::MAX, self);
    }
}

/// Takes the first `size` values away.
fn front<'v>(values: &mut &'v [f32], size: usize) -> &'v [f32] {
    let own;
    (own, *values) = values.split_at(size);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinary(row: usize) -> OutputRow {
        OutputRow {
            row,
            residues: row + 1,
            stitched: None,
        }
    }

    #[test]
    fn whole_proteins_stand_where_their_last_window_stood() {
        let layout = EmbeddingLayout {
            columns: ["mean_1", "residues_1"]
                .map(|name| name.parse().expect("a column"))
                .to_vec(),
            dim: 1,
            dtype: StoreDtype::F32,
            stitched: true,
            labels: plmkit_contract::Labels::default(),
        };
        // Rows 1 and 3 have 2 and 4 residues.
        let mut embedded = Embedded {
            rows: vec![ordinary(1), ordinary(3)],
            values: vec![
                vec![1.0, 3.0].into(),
                vec![1.0, 1.1, 3.0, 3.1, 3.2, 3.3].into(),
            ],
            ..Embedded::default()
        };
        let whole = |value: f32| Whole {
            values: vec![vec![value], vec![value; 3]],
            residues: 3,
            n_windows: 2,
            digest: SequenceDigest::default(),
        };
        embedded.insert(&layout, vec![(2, whole(2.0)), (4, whole(4.0))]);
        let rows: Vec<usize> = embedded.rows.iter().map(|row| row.row).collect();
        assert_eq!(rows, [1, 2, 3, 4]);
        assert_eq!(embedded.values[0][..], [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            embedded.values[1][..],
            [1.0, 1.1, 2.0, 2.0, 2.0, 3.0, 3.1, 3.2, 3.3, 4.0, 4.0, 4.0]
        );
    }
}
