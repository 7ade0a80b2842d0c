//! From a batch to rows of the output.

use plmkit_contract::{EmbeddingLayout, Reason, StoreDtype};
use plmkit_esm2::{EsmError, ModelOutput, PendingOutput};

use crate::EngineError;
use crate::batch::{Batch, BatchResult};
use crate::columns::{Columns, OutputRow};
use crate::compute::{Computed, Embedder, Selection, extend_columns, is_storable, split_columns};
use crate::stitch::{StitchedProtein, Stitcher};

/// Computes batches and stitches the windows of proteins.
pub(crate) struct BatchEmbedder<'a> {
    embedder: Embedder<'a>,
    layout: &'a EmbeddingLayout,
    columns: Columns<'a>,
    stitcher: Stitcher,
    /// The memory of the GPU.
    memory_mib: Option<u64>,
}

impl<'a> BatchEmbedder<'a> {
    /// Makes rows with the columns of `layout`.
    pub(crate) fn new(embedder: Embedder<'a>, layout: &'a EmbeddingLayout) -> Self {
        let gpu = embedder.model.gpu();
        Self {
            memory_mib: gpu.map(|(_, bytes)| bytes as u64 >> 20),
            embedder,
            layout,
            columns: Columns::new(layout),
            stitcher: Stitcher::new(&layout.columns, layout.dim),
        }
    }

    /// Starts the computation of a batch, except for its windows. A device computes while the program goes on.
    pub(crate) fn begin(&self, batch: &Batch) -> Option<Result<PendingOutput, EngineError>> {
        let (_, whole) = windows_and_others(batch);
        self.embedder.begin(select(batch, &whole, self.layout))
    }

    /// Returns the rows of a batch, from the output that [`begin`](Self::begin) started or from a new computation; `None` after a
    /// requested stop. The batches of an unfinished protein must come one after the other.
    pub(crate) fn embed(
        &mut self,
        batch: &Batch,
        begun: Option<Result<ModelOutput, EngineError>>,
    ) -> Result<Option<BatchResult>, EngineError> {
        match self.embed_rows(batch, begun) {
            Err(EngineError::Model(EsmError::Stopped)) => Ok(None),
            result => result.map(Some),
        }
    }

    fn embed_rows(
        &mut self,
        batch: &Batch,
        begun: Option<Result<ModelOutput, EngineError>>,
    ) -> Result<BatchResult, EngineError> {
        let (windows, whole) = windows_and_others(batch);
        let selection = select(batch, &whole, self.layout);
        let mut computed = self.embedder.embed(selection, begun)?;
        for (row, _) in &mut computed.rejected {
            *row = whole[*row];
        }
        let rejected = &computed.rejected;
        let is_kept = |row: &&usize| {
            rejected
                .binary_search_by_key(*row, |(row, _)| *row)
                .is_err()
        };
        let kept = whole.iter().filter(is_kept).map(|&row| OutputRow {
            row,
            residues: batch.packed.residues(row),
            stitched: None,
        });
        let mut rows: Vec<OutputRow> = kept.collect();
        let ordinals = batch.packed.ordinals();
        // One protein after the other: the values of all residues of a batch may exceed the memory.
        for protein in windows.chunk_by(|&a, &b| ordinals[a] == ordinals[b]) {
            rows.extend(self.stitch(batch, protein, &mut computed)?);
        }
        computed.rejected.sort_unstable();
        computed.stats.memory_mib = self.embedder.model.used_memory_mib();
        if let Some((_, peak_mib)) = computed.stats.memory_mib {
            self.spare_memory(peak_mib, batch.packed.tokens().len());
        }
        let columns = &self.columns;
        Ok(BatchResult {
            rows: columns.lay_out(&batch.packed, &rows, computed.values)?,
            rejected: computed.rejected,
            stats: Some(computed.stats),
        })
    }

    /// Halves the next batches if the last ones nearly filled the device memory.
    fn spare_memory(&mut self, peak_mib: u64, tokens: usize) {
        let Some(memory_mib) = self.memory_mib else {
            return;
        };
        let share = peak_mib as f64 / memory_mib as f64;
        if self.embedder.limit.record_memory(share, tokens) {
            tracing::warn!(
                "device memory is nearly full, {peak_mib} of {memory_mib} MiB: the next batches are computed in halves; \
                 pack with a smaller --max-batch-tokens"
            );
        }
    }

    /// Computes windows of one protein. If the last window is among them, appends the values of the protein to `computed` and
    /// returns its row.
    fn stitch(
        &mut self,
        batch: &Batch,
        rows: &[usize],
        computed: &mut Computed,
    ) -> Result<Option<OutputRow>, EngineError> {
        let columns = self.stitcher.columns().to_vec();
        let windows = if self.stitcher.is_lost(batch.packed.span(rows[0])) {
            Computed::default()
        } else {
            let selection = Selection {
                batch,
                rows,
                columns: &columns,
                // Blending is in f32, whatever the stored type.
                dtype: StoreDtype::F32,
            };
            self.embedder.embed(selection, None)?
        };
        computed.stats.oom_splits += windows.stats.oom_splits;
        computed.stats.in_f32 += windows.stats.in_f32;
        computed.stats.add_device_times(windows.stats.device);
        let rejection = |window: usize| -> Option<Reason> {
            let mut rejected = windows.rejected.iter();
            rejected.find_map(|&(row, reason)| (row == window).then_some(reason))
        };
        let kept = (0..rows.len()).filter(|&window| rejection(window).is_none());
        let residues = kept.map(|window| batch.packed.residues(rows[window]));
        let mut values = split_columns(&columns, self.layout.dim, &windows.values, residues);
        let mut stitched = None;
        for (window, &row) in rows.iter().enumerate() {
            let own = match rejection(window) {
                Some(reason) => Err(reason),
                None => Ok(values.next().unwrap_or_default()),
            };
            let own = own.as_deref().map_err(|reason| *reason);
            let tokens = batch.packed.residue_tokens(row);
            let protein = self.stitcher.add(batch.packed.span(row), tokens, own);
            let is_storable = |protein: &StitchedProtein| {
                let mut columns = protein.values.iter();
                columns.all(|values| is_storable(values, self.layout.dtype))
            };
            match protein {
                Some(Ok(protein)) if is_storable(&protein) => {
                    extend_columns(&mut computed.values, &protein.values);
                    stitched = Some(OutputRow {
                        row,
                        residues: protein.residues,
                        stitched: Some(protein.key),
                    });
                }
                Some(Ok(_)) => computed.rejected.push((row, Reason::NotFinite)),
                Some(Err(reason)) => computed.rejected.push((row, reason)),
                None => {}
            }
        }
        Ok(stitched)
    }
}

/// Splits the rows of a batch into windows to stitch and all others.
fn windows_and_others(batch: &Batch) -> (Vec<usize>, Vec<usize>) {
    (0..batch.packed.sequences()).partition(|&row| batch.is_window(row))
}

/// Selects rows of a batch that are rows of the output.
fn select<'a>(batch: &'a Batch, rows: &'a [usize], layout: &'a EmbeddingLayout) -> Selection<'a> {
    Selection {
        batch,
        rows,
        columns: &layout.columns,
        dtype: layout.dtype,
    }
}
