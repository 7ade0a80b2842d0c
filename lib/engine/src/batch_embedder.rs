//! A batch to rows of the output.

use plmkit_contract::{EmbeddingLayout, Reason, StoreDtype};
use plmkit_esm2::{EsmError, ModelOutput, PendingOutput};

use crate::EngineError;
use crate::batch::{Batch, BatchResult};
use crate::columns::{Columns, OutputRow};
use crate::compute::{Computed, Embedder, Selection, extend_columns, is_storable, split_columns};
use crate::stitch::{Stitcher, Whole};

/// Computes batches, and puts the windows of proteins together.
pub(crate) struct BatchEmbedder<'a> {
    embedder: Embedder<'a>,
    layout: &'a EmbeddingLayout,
    columns: Columns<'a>,
    stitcher: Stitcher,
}

impl<'a> BatchEmbedder<'a> {
    /// For the rows of a file with the columns of `layout`.
    pub(crate) fn new(embedder: Embedder<'a>, layout: &'a EmbeddingLayout) -> Self {
        Self {
            embedder,
            layout,
            columns: Columns::new(layout),
            stitcher: Stitcher::new(&layout.columns, layout.dim),
        }
    }

    /// Starts the computation of a batch, but for its windows, so that a device computes it while the program goes on.
    pub(crate) fn begin(&self, batch: &Batch) -> Option<Result<PendingOutput, EngineError>> {
        let (_, ordinary) = windows_and_others(batch);
        self.embedder.begin(self.select(batch, &ordinary))
    }

    /// The rows that a batch gives, of which some may have been [begun](Self::begin); `None` once a stop was requested. The
    /// batches of an unfinished protein come one after the other.
    pub(crate) fn embed(
        &mut self,
        batch: &Batch,
        begun: Option<Result<ModelOutput, EngineError>>,
    ) -> Result<Option<BatchResult>, EngineError> {
        match self.embed_rows(batch, begun) {
            Ok(result) => Ok(Some(result)),
            Err(EngineError::Model(EsmError::Stopped)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn select<'s>(&self, batch: &'s Batch, rows: &'s [usize]) -> Selection<'s>
    where
        'a: 's,
    {
        Selection {
            batch,
            rows,
            columns: &self.layout.columns,
            dtype: self.layout.dtype,
        }
    }

    fn embed_rows(
        &mut self,
        batch: &Batch,
        begun: Option<Result<ModelOutput, EngineError>>,
    ) -> Result<BatchResult, EngineError> {
        let (windows, ordinary) = windows_and_others(batch);
        let mut computed = self.embedder.embed(self.select(batch, &ordinary), begun)?;
        for (row, _) in &mut computed.rejected {
            *row = ordinary[*row];
        }
        let is_rejected = |row: usize| {
            let found = computed
                .rejected
                .binary_search_by_key(&row, |&(row, _)| row);
            found.is_ok()
        };
        let kept = ordinary.iter().filter(|&&row| !is_rejected(row));
        let mut rows: Vec<OutputRow> = kept
            .map(|&row| OutputRow {
                row,
                residues: batch.packed.residues(row),
                stitched: None,
            })
            .collect();
        let ordinals = batch.packed.ordinals();
        // One protein after the other: the values of all residues of a batch may not fit into memory at once.
        for protein in windows.chunk_by(|&a, &b| ordinals[a] == ordinals[b]) {
            rows.extend(self.stitch(batch, protein, &mut computed)?);
        }
        computed.rejected.sort_unstable();
        Ok(BatchResult {
            rows: self
                .columns
                .lay_out(&batch.packed, &rows, computed.values)?,
            rejected: computed.rejected,
            stats: Some(computed.stats),
        })
    }

    /// Computes windows of one protein; if the last one is among them, adds the values of the protein to `computed` and returns
    /// its row.
    fn stitch(
        &mut self,
        batch: &Batch,
        rows: &[usize],
        computed: &mut Computed,
    ) -> Result<Option<OutputRow>, EngineError> {
        let first = rows.first().map(|&row| batch.packed.span(row));
        let columns = self.stitcher.columns().to_vec();
        let windows = if first.is_some_and(|first| self.stitcher.is_lost(first)) {
            Computed::default()
        } else {
            let selection = Selection {
                batch,
                rows,
                columns: &columns,
                // Blending is in f32, whatever the type in which its results are stored.
                dtype: StoreDtype::F32,
            };
            self.embedder.embed(selection, None)?
        };
        computed.stats.oom_splits += windows.stats.oom_splits;
        computed.stats.in_f32 += windows.stats.in_f32;
        computed.stats.add_device_times(windows.stats.device);
        let mut stitched = None;
        let reason_of = |sequence: usize| {
            let found = windows.rejected.iter().find(|&&(row, _)| row == sequence);
            found.map(|&(_, reason)| reason)
        };
        let reasons: Vec<Option<Reason>> = (0..rows.len()).map(reason_of).collect();
        let kept = rows.iter().zip(&reasons);
        let kept = kept.filter(|(_, reason)| reason.is_none());
        let residues = kept.map(|(&row, _)| batch.packed.residues(row));
        let mut values = split_columns(&columns, self.layout.dim, &windows.values, residues);
        for (&row, reason) in rows.iter().zip(&reasons) {
            let own = match reason {
                Some(reason) => Err(*reason),
                None => Ok(values.next().unwrap_or_default()),
            };
            let own = own.as_deref().map_err(|reason| *reason);
            let tokens = batch.packed.residue_tokens(row);
            let whole = self.stitcher.add(batch.packed.span(row), tokens, own);
            match whole.map(|whole| whole.and_then(|whole| self.check_storable(whole))) {
                Some(Ok(whole)) => {
                    extend_columns(&mut computed.values, &whole.values);
                    stitched = Some(OutputRow {
                        row,
                        residues: whole.residues,
                        stitched: Some(whole.origin),
                    });
                }
                Some(Err(reason)) => computed.rejected.push((row, reason)),
                None => {}
            }
        }
        Ok(stitched)
    }

    fn check_storable(&self, whole: Whole) -> Result<Whole, Reason> {
        let mut columns = whole.values.iter();
        if columns.all(|values| is_storable(values, self.layout.dtype)) {
            Ok(whole)
        } else {
            Err(Reason::NotFinite)
        }
    }
}

/// The rows of a batch that are put together with others, and those that are not.
fn windows_and_others(batch: &Batch) -> (Vec<usize>, Vec<usize>) {
    (0..batch.packed.sequences()).partition(|&row| batch.is_window(row))
}
