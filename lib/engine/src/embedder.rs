//! From a batch to rows of the output. Out-of-memory errors and values that are not finite are handled here.

use std::borrow::Cow;
use std::time::Instant;

use arrow_array::RecordBatch;
use plmkit_contract::{
    AMINO_ACIDS, Column, EmbeddingLayout, Reason, Reject, Scores, StoreDtype, Widths,
};
use plmkit_esm2::{
    Buffer, Buffers, DeviceTimes, Dtype, Esm2, EsmError, KernelKind, Ticket, Varlen,
};
use plmkit_kit::{Fault, Stop};
use plmkit_logs::event::{BatchDone, milliseconds};

use crate::batch::{Batch, ComputedBatch};
use crate::columns::{ColumnWriter, ROW_BYTES, Stitched};
use crate::computation::{Computation, is_storable, last, middle, split_columns};
use crate::config::RunConfig;
use crate::crash_marks;
use crate::error::EngineError;
use crate::scores::{amino_acid_logits, model_columns, sources};
use crate::stitch::Stitcher;
use crate::token_limit::TokenLimit;

/// Computes the batches of a run with a model, and stitches the windows of proteins.
///
/// If memory runs out or values are not finite, only the sequences that cannot be computed are rejected.
pub(crate) struct Embedder<'a> {
    model: &'a Esm2,
    config: &'a RunConfig,
    pub(crate) stop: &'a Stop,
    columns: ColumnWriter,
    stitcher: Stitcher,
    pub(crate) limit: TokenLimit,
    /// Of the batch that is computed: how often it was halved, its rows that were computed again in f32, and the device's times.
    oom_splits: u64,
    recomputed: u64,
    times: Option<DeviceTimes>,
}

/// A batch that was taken up.
pub(crate) struct StartedBatch {
    batch: Batch,
    started: Instant,
    /// What the model gave for it, if it was submitted: its computation has begun.
    ticket: Option<Result<Ticket, EngineError>>,
}

impl StartedBatch {
    /// Whether a device computes it while the program goes on.
    pub(crate) fn is_on_device(&self) -> bool {
        matches!(&self.ticket, Some(Ok(ticket)) if ticket.is_pending())
    }
}

/// The fields of `kernels` of an event.
const KERNELS: [(&str, KernelKind); 8] = [
    ("gemm_ms", KernelKind::Gemm),
    ("attention_ms", KernelKind::Attention),
    ("embedding_ms", KernelKind::Embedding),
    ("layer_norm_ms", KernelKind::LayerNorm),
    ("rotary_ms", KernelKind::Rotary),
    ("gelu_ms", KernelKind::Gelu),
    ("pooling_ms", KernelKind::Pooling),
    ("collect_ms", KernelKind::Collect),
];

impl<'a> Embedder<'a> {
    /// Computes the `columns` of an output, from the first batch of a run on.
    pub(crate) fn new(
        config: &'a RunConfig,
        columns: &[Column],
        model: &'a Esm2,
        stop: &'a Stop,
    ) -> Self {
        let sources = sources(columns, config.outputs.scores == Some(Scores::Masked));
        let widths = model.info().config().widths();
        Self {
            stitcher: Stitcher::new(&sources, widths),
            model,
            config,
            stop,
            columns: ColumnWriter {
                sources,
                logits: widths.logits,
                halves: Buffers::default(),
            },
            limit: TokenLimit::default(),
            oom_splits: 0,
            recomputed: 0,
            times: None,
        }
    }

    /// Takes up a batch. If the token limit permits it and no process crashed at it, a device computes all but its windows
    /// while the program goes on; [`finish`](Self::finish) recovers from errors.
    pub(crate) fn start(&self, batch: Batch) -> StartedBatch {
        let started = Instant::now();
        let (_, whole) = windows_and_others(&batch);
        let rows = Computation::new(&batch, &self.columns.sources, self.config.store_dtype);
        let tokens = last(&rows.cu_seqlens(&whole));
        let number = batch.event.batch;
        let is_early =
            !whole.is_empty() && self.limit.permits(tokens) && !crash_marks::is_suspect(number);
        let ticket = is_early.then(|| {
            crash_marks::begin(number);
            self.submit_rows(&rows, &whole, self.model.info().dtype)
        });
        StartedBatch {
            batch,
            started,
            ticket,
        }
    }

    /// Computes a batch that was started; `None` after a requested stop. The batches of an unfinished protein must come one after the
    /// other.
    pub(crate) fn finish(
        &mut self,
        batch: StartedBatch,
        layout: &EmbeddingLayout,
    ) -> Result<Option<ComputedBatch>, EngineError> {
        let StartedBatch {
            mut batch,
            started,
            ticket,
        } = batch;
        let number = batch.event.batch;
        crash_marks::begin(number);
        (self.oom_splits, self.recomputed, self.times) = (0, 0, None);
        let (rows, rejected) = match self.embed_rows(&batch, layout, ticket) {
            Err(EngineError::Model(EsmError::Stopped)) => return Ok(None),
            result => result?,
        };
        let memory_mib = self.model.used_memory_mib();
        if let Some((_, peak_mib)) = memory_mib {
            self.spare_memory(peak_mib, batch.largest().1);
        }
        let times = self.times;
        let kernels = times.and_then(|times| times.kernels);
        // Another batch may have been computed meanwhile, so a device's own clock is better.
        let compute = times.map_or_else(|| started.elapsed(), |times| times.compute);
        batch.event = BatchDone {
            compute_ms: Some(milliseconds(compute)),
            h2d_ms: times.map(|times| milliseconds(times.h2d)),
            d2h_ms: times.map(|times| milliseconds(times.d2h)),
            kernels: kernels.map(|kernels| {
                KERNELS
                    .map(|(name, kind)| (name.to_owned(), milliseconds(kernels[kind as usize])))
                    .into()
            }),
            device_memory_mib: memory_mib.map(|(now, _)| now),
            device_memory_peak_mib: memory_mib.map(|(_, peak)| peak),
            oom_splits: self.oom_splits,
            recomputed: self.recomputed,
            ..batch.event
        };
        crash_marks::end(number);
        Ok(Some(batch.into_computed(vec![rows], rejected)))
    }

    /// Computes the rows of the output, and those without vectors.
    fn embed_rows(
        &mut self,
        batch: &Batch,
        layout: &EmbeddingLayout,
        submitted: Option<Result<Ticket, EngineError>>,
    ) -> Result<(RecordBatch, Vec<Reject>), EngineError> {
        let (windows, whole) = windows_and_others(batch);
        let mut computed = Computation::new(batch, &self.columns.sources, self.config.store_dtype);
        if !whole.is_empty() {
            self.compute_all(&mut computed, &whole, submitted)?;
        }
        let is_kept = |row: &&usize| !computed.rejected.contains_key(row);
        let kept = whole.iter().filter(is_kept);
        let mut rows: Vec<_> = kept.map(|&row| (row, None)).collect();
        let ordinals = batch.packed.ordinals();
        // One protein after the other: the values of all residues of a batch may exceed the memory.
        for protein in windows.chunk_by(|&a, &b| ordinals[a] == ordinals[b]) {
            let stitched = self.stitch(protein, &mut computed)?;
            rows.extend(stitched.map(|(row, protein)| (row, Some(protein))));
        }
        let rejected = computed.rejected.iter();
        let rejected = rejected.map(|(&row, &reason)| batch.reject(row, reason));
        let rejected = rejected.collect();
        let rows = self
            .columns
            .lay_out(layout, &batch.packed, &rows, computed.values);
        let refused = |error| Fault::internal(format_args!("cannot lay out vectors: {error}"));
        Ok((rows.map_err(refused)?, rejected))
    }

    fn widths(&self) -> Widths {
        self.model.info().config().widths()
    }

    /// Halves the next batches if the last ones nearly filled the device memory.
    fn spare_memory(&mut self, peak_mib: u64, tokens: usize) {
        let Some((_, bytes)) = self.model.info().gpu else {
            return;
        };
        let memory_mib = bytes as u64 >> 20;
        let share = peak_mib as f64 / memory_mib as f64;
        if self.limit.record_memory(share, tokens) {
            tracing::warn!(
                "device memory is nearly full, {peak_mib} of {memory_mib} MiB: the next batches are computed in halves; \
                 pack with a smaller --max-batch-tokens"
            );
        }
    }

    /// Computes windows of one protein. If the last window is among them, appends the values of the protein to `computed` and
    /// returns its row, and the protein.
    fn stitch(
        &mut self,
        rows: &[usize],
        computed: &mut Computation<'_>,
    ) -> Result<Option<(usize, Stitched)>, EngineError> {
        let batch = computed.batch;
        let columns = self.stitcher.columns().to_vec();
        // Blending is in f32, whatever the stored type.
        let mut windows = Computation::new(batch, &columns, StoreDtype::F32);
        if self.stitcher.is_lost(batch.packed.span(rows[0])) {
            windows.values.clear();
        } else {
            self.compute_all(&mut windows, rows, None)?;
        }
        let is_kept = |row: &&usize| !windows.rejected.contains_key(row);
        let kept = rows.iter().filter(is_kept);
        let residues = kept.map(|&row| batch.packed.residues(row));
        let mut by_row = split_columns(&columns, self.widths(), &windows.values, residues);
        let mut stitched = None;
        for &row in rows {
            let values = match windows.rejected.get(&row) {
                Some(&reason) => Err(reason),
                None => Ok(by_row.next().unwrap_or_default()),
            };
            let tokens = batch.packed.residue_tokens(row);
            let protein = self.stitcher.add(batch.packed.span(row), tokens, values);
            // Log-probabilities are made of logits later, and residues that are not masked have none.
            let is_storable = |protein: &Stitched| {
                let of_model = model_columns(&self.columns.sources).len();
                let mut columns = protein.values[..of_model].iter();
                columns.all(|values| is_storable(values, self.config.store_dtype))
            };
            match protein {
                Some(Ok(mut protein)) if is_storable(&protein) => {
                    computed.extend(&std::mem::take(&mut protein.values));
                    stitched = Some((row, protein));
                }
                Some(Ok(_)) => drop(computed.rejected.insert(row, Reason::NotFinite)),
                Some(Err(reason)) => drop(computed.rejected.insert(row, reason)),
                None => {}
            }
        }
        Ok(stitched)
    }

    /// Computes rows, and after the columns of the model the logits of masked residues, if they are asked for.
    fn compute_all(
        &mut self,
        computed: &mut Computation<'_>,
        rows: &[usize],
        submitted: Option<Result<Ticket, EngineError>>,
    ) -> Result<(), EngineError> {
        let dtype = self.model.info().dtype;
        self.compute(computed, rows, dtype, submitted)?;
        if model_columns(&self.columns.sources) != self.columns.sources
            && computed.rejected.is_empty()
        {
            computed.values.truncate(computed.columns.len());
            match self.mask(computed)? {
                Ok(logits) => computed.values.push(logits.into()),
                Err(reason) => {
                    computed.values.clear();
                    computed.rejected.insert(0, reason);
                }
            }
        }
        Ok(())
    }

    /// Returns the logits of the amino acids for each residue of the only row, `(residues, 20)`, while it is masked; NaN for residues
    /// that are not. The inner error is the reason for a rejection.
    fn mask(&mut self, row: &Computation<'_>) -> Result<Result<Vec<f32>, Reason>, EngineError> {
        let (residues, width) = (row.residues(0), self.widths().logits);
        let mut masked = vec![[f32::NAN; AMINO_ACIDS.len()]; residues];
        for pass in &row.batch.passes {
            let mut computed = Computation::new(row.batch, &[Column::Logits], row.dtype);
            computed.is_masked = true;
            let dtype = self.model.info().dtype;
            self.compute(&mut computed, pass, dtype, None)?;
            if let Some((_, &reason)) = computed.rejected.first_key_value() {
                return Ok(Err(reason));
            }
            let copies = computed.values[0].chunks_exact(residues * width);
            for (&residue, logits) in pass.iter().zip(copies) {
                masked[residue] = amino_acid_logits(&logits[residue * width..][..width]);
            }
        }
        Ok(Ok(masked.into_flattened()))
    }

    /// Computes rows in a type, in halves if they do not fit in memory together. Values that are not finite are computed again in
    /// f32, if that has a larger range.
    fn compute(
        &mut self,
        computed: &mut Computation<'_>,
        rows: &[usize],
        dtype: Dtype,
        submitted: Option<Result<Ticket, EngineError>>,
    ) -> Result<(), EngineError> {
        let cu_seqlens = computed.cu_seqlens(rows);
        let tokens = last(&cu_seqlens);
        // Others need other memory.
        let is_usual = dtype == self.model.info().dtype && !computed.is_masked;
        if submitted.is_some() || rows.len() == 1 || self.limit.permits(tokens) {
            // What does not fit alone is tried once more, when nothing is cached for other batches.
            let again = (rows.len() == 1).then_some(None);
            for submitted in [submitted].into_iter().chain(again) {
                let submit = || self.submit_rows(computed, rows, dtype);
                let submitted = submitted.unwrap_or_else(submit);
                match submitted.and_then(|ticket| Ok(ticket.collect()?)) {
                    Ok(values) => {
                        self.limit.record_success(tokens);
                        if is_usual {
                            let lengths = cu_seqlens.windows(2).map(|ends| ends[1] - ends[0]);
                            let longest = lengths.max().unwrap_or(0);
                            self.limit.record_sequence(longest as usize);
                        }
                        return self.keep_finite(computed, rows, dtype, values);
                    }
                    Err(EngineError::Model(error)) if error.is_out_of_memory() => {}
                    Err(error) => return Err(error),
                }
                self.model.release()?;
            }
            if let [row] = rows {
                if is_usual && let Err(longest) = self.limit.record_unfit(tokens) {
                    return Err(EngineError::out_of_memory(format!(
                        "a sequence of {tokens} tokens does not fit, and one of {longest} did before: another program takes the memory"
                    )));
                }
                computed.rejected.insert(*row, Reason::OutOfMemory);
                return Ok(());
            }
            self.limit.record_failure(tokens);
            self.oom_splits += 1;
        }
        let (before, after) = rows.split_at(middle(&cu_seqlens));
        self.compute(computed, before, dtype, None)?;
        self.compute(computed, after, dtype, None)
    }

    /// Starts the computation of rows in one type. The tokens of a whole batch are not copied.
    fn submit_rows(
        &self,
        computation: &Computation<'_>,
        rows: &[usize],
        dtype: Dtype,
    ) -> Result<Ticket, EngineError> {
        let packed = &computation.batch.packed;
        let ordinals = rows.iter().map(|&row| computation.ordinal(row));
        self.config.injection.maybe_fail(ordinals);
        let is_whole = !computation.is_masked && rows.len() == packed.sequences();
        let (tokens, offsets): (Cow<[u8]>, Cow<[i32]>) = if is_whole {
            (packed.tokens().into(), packed.cu_seqlens().into())
        } else {
            (
                computation.tokens(rows).into(),
                computation.cu_seqlens(rows).into(),
            )
        };
        self.config.injection.check_memory(tokens.len())?;
        self.check_lists(computation, rows)?;
        let batch = Varlen::new(&tokens, &offsets).expect("each sequence was checked");
        Ok(self
            .model
            .submit(batch, &computation.columns, dtype, self.stop)?)
    }

    /// Fails, as if memory were full, if the output cannot hold the values of a row.
    fn check_lists(&self, of: &Computation<'_>, rows: &[usize]) -> Result<(), EsmError> {
        let longest = rows.iter().map(|&row| of.residues(row)).max().unwrap_or(0);
        let bytes = self.config.store_dtype.bytes();
        let bytes = |column: &Column| column.values(longest, self.widths()) * bytes;
        if of.columns.iter().map(bytes).any(|bytes| bytes > ROW_BYTES) {
            let what = "a row of the output holds no more than 2 GiB of a column";
            return Err(EsmError::OutOfMemory(what.to_owned()));
        }
        Ok(())
    }

    /// Appends the values of the rows whose values are all finite. Rejects each of the others, or computes it again in f32.
    fn keep_finite(
        &mut self,
        computed: &mut Computation<'_>,
        rows: &[usize],
        dtype: Dtype,
        (columns, times): (Vec<Buffer<f32>>, Option<DeviceTimes>),
    ) -> Result<(), EngineError> {
        if let Some(times) = times {
            *self.times.get_or_insert_default() += times;
        }
        let residues = rows.iter().map(|&row| computed.residues(row));
        let by_row = split_columns(&computed.columns, self.widths(), &columns, residues);
        let by_row: Vec<(usize, Vec<&[f32]>)> = rows.iter().copied().zip(by_row).collect();
        let is_finite = |(row, own): &(usize, Vec<&[f32]>)| {
            let injected = &self.config.injection.not_finite;
            let mut columns = own.iter();
            !injected.contains(&computed.ordinal(*row))
                && columns.all(|values| is_storable(values, computed.dtype))
        };
        let finite: Vec<bool> = by_row.iter().map(is_finite).collect();
        if finite.iter().all(|&finite| finite) && computed.values.iter().all(|own| own.is_empty()) {
            drop(by_row);
            computed.values = columns;
            self.recomputed += u64::from(dtype != self.model.info().dtype);
            return Ok(());
        }
        for ((row, own), finite) in by_row.into_iter().zip(finite) {
            if finite {
                computed.extend(&own);
                self.recomputed += u64::from(dtype != self.model.info().dtype);
            } else if matches!(dtype, Dtype::F32 | Dtype::Int8) {
                // int8 has scales in f32, and so the range of f32.
                computed.rejected.insert(row, Reason::NotFinite);
            } else {
                self.compute(computed, &[row], Dtype::F32, None)?;
            }
        }
        Ok(())
    }
}

/// Splits the rows of a batch into windows to stitch and all others.
fn windows_and_others(batch: &Batch) -> (Vec<usize>, Vec<usize>) {
    (0..batch.packed.sequences()).partition(|&row| batch.is_window(row))
}
