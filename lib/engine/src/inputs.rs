//! The opened and verified batches files of a run, with totals over them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{
    AMINO_ACIDS, Column, DESCRIPTION, EmbeddingLayout, EmbeddingWork, Labels, SAMPLE, SOURCE,
    WINDOWS,
};
use plmkit_kit::{Stop, path_text};
use plmkit_store::{BatchesFile, FileKind, PackedBatch, ROW_GROUP_BYTES, ROW_GROUP_ROWS};
use serde_json::Value;

use crate::batch::Batch;
use crate::columns::ROW_BYTES;
use crate::config::{RunConfig, Windows};
use crate::error::EngineError;
use crate::masking::Masking;
use crate::stitch::WindowOrder;

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) batches: u64,
    pub(crate) sequences: u64,
    pub(crate) tokens: u64,
    /// Rows of the batches, their residues, and the pairs of residues within a row: masked copies do not count.
    rows: u64,
    residues: u64,
    pairs: u64,
}

impl Workload {
    fn of(batch: &Batch) -> Self {
        let rows = batch.packed.sequences();
        let residues = (0..rows).map(|row| batch.packed.residues(row) as u64);
        Self {
            batches: 1,
            sequences: batch.event.sequences,
            tokens: batch.event.tokens,
            rows: rows as u64,
            residues: residues.clone().sum(),
            pairs: residues.map(|residues| residues * residues).sum(),
        }
    }

    fn add(&mut self, more: &Self) {
        self.batches += more.batches;
        self.sequences += more.sequences;
        self.tokens += more.tokens;
        self.rows += more.rows;
        self.residues += more.residues;
        self.pairs += more.pairs;
    }
}

/// The verified inputs of a run.
#[derive(Debug, Default)]
pub(crate) struct RunInputs {
    /// The files, in order.
    pub(crate) files: Vec<BatchesFile>,
    /// The batches of the run, in order.
    batches: Vec<Planned>,
    /// Which residues are masked, if any are.
    masking: Option<Arc<Masking>>,
    /// The work of all batches.
    pub(crate) total: Workload,
    /// The most sequences and the most tokens that are computed together.
    pub(crate) largest_batch: (usize, usize),
    /// The tokens of the longest sequence.
    pub(crate) longest: usize,
    /// Rows of the output, embedded or rejected.
    pub(crate) rows: u64,
    /// Rows whose protein was truncated.
    pub(crate) truncated: u64,
    /// How windows are combined; `None` if the batches have no windows.
    pub(crate) windows: Option<Windows>,
    /// The label columns of the batches.
    pub(crate) labels: Labels,
    /// Options that name the set of shards and its labels. The output repeats them.
    pub(crate) origin: BTreeMap<String, Value>,
}

/// A batch of the run.
#[derive(Debug)]
struct Planned {
    /// The index of its file.
    file: usize,
    /// Its position in the file.
    record_batch: usize,
    /// The only row, if it is a batch of its own.
    row: Option<usize>,
    size: Workload,
    /// Whether it is the batch of the leftovers.
    tail: bool,
    /// Whether no protein continues in the next batch.
    at_boundary: bool,
    /// Whether all rows so far precede all later rows of the run.
    sorted: bool,
}

impl RunInputs {
    /// Opens and verifies every file. Checks that no row comes twice and, if windows are to be stitched, that their order permits
    /// it, and that each residue to mask is there.
    pub(crate) fn open(
        config: &RunConfig,
        paths: &[PathBuf],
        masking: Option<Arc<Masking>>,
        stop: &Stop,
    ) -> Result<Self, EngineError> {
        let mut inputs = Self {
            masking,
            ..Self::default()
        };
        let mut ends_of_proteins = HashMap::new();
        let mut keys = Vec::new();
        let mut ordinal_ranges = Vec::new();
        for (number, path) in (0u32..).zip(paths) {
            let file = BatchesFile::open_unverified(path);
            let mut file = file.map_err(|error| error.of_input(FileKind::Batches))?;
            inputs.check_agreement(&file, config.windows)?;
            let mut order = WindowOrder::default();
            let (first, budget) = (inputs.batches.len(), token_budget(&file));
            file.verify(stop, |record_batch, packed| {
                for row in inputs.rows_apart(&packed, config) {
                    let name = batch_name(path, record_batch);
                    let batch = inputs.cut(name, &packed, row, budget);
                    if row.is_some() {
                        let id = batch.packed.ids().value(0).to_owned();
                        let end: &mut u64 = ends_of_proteins.entry(id).or_default();
                        *end = batch.packed.span(0).range().end.max(*end);
                    }
                    if inputs.stitched() {
                        let checked = order.check_batch(&batch.packed);
                        checked.map_err(|what| EngineError::data(&batch.name, what))?;
                    }
                    inputs.count(&batch);
                    let ordinals = batch.packed.ordinals().iter().copied();
                    ordinal_ranges.push((ordinals.clone().min(), ordinals.max()));
                    inputs.batches.push(Planned {
                        file: number as usize,
                        record_batch,
                        row,
                        size: Workload::of(&batch),
                        tail: false,
                        at_boundary: !order.unfinished(),
                        sorted: false,
                    });
                }
                let ordinals = packed.ordinals().iter().copied();
                let rows = ordinals.zip(packed.starts().values());
                keys.extend(rows.map(|(ordinal, &start)| (ordinal, start, number)));
                Ok::<_, EngineError>(())
            })?;
            let last = batch_name(path, file.len().saturating_sub(1));
            order
                .check_end()
                .map_err(|what| EngineError::data(&last, what))?;
            let own = &mut inputs.batches[first..];
            if inputs.masking.is_none()
                && let Some(tail) = tail(own.iter().map(|batch| batch.size.tokens), budget)
            {
                own[tail].tail = true;
            }
            inputs.files.push(file);
        }
        if let Some(masking) = &inputs.masking {
            masking.check(&ends_of_proteins)?;
        }
        for (batch, sorted) in inputs.batches.iter_mut().zip(sorted(&ordinal_ranges)) {
            batch.sorted = sorted;
        }
        keys.sort_unstable();
        let mut pairs = keys.windows(2);
        let same_row = |pair: &&[(u64, u32, u32)]| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1);
        if let Some(&[(ordinal, start, first), (.., again)]) = pairs.find(same_row) {
            let first = path_text(&paths[first as usize]);
            let what = format_args!(
                "ordinal {ordinal}, start {start}: already in {first}; expected each row of one set of shards once"
            );
            return Err(EngineError::data(path_text(&paths[again as usize]), what));
        }
        Ok(inputs)
    }

    /// Checks that a file comes from the same set of shards as the first file, and takes over the options of the first.
    fn check_agreement(&mut self, file: &BatchesFile, windows: Windows) -> Result<(), EngineError> {
        let options = &file.provenance().options;
        let has = options.contains_key(WINDOWS);
        let found = has.then_some(windows);
        let origin: BTreeMap<String, Value> = [SOURCE, SAMPLE, DESCRIPTION]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), options.get(name)?.clone())))
            .collect();
        let Some(first) = self.files.first() else {
            (self.windows, self.labels, self.origin) = (found, file.labels(), origin);
            return Ok(());
        };
        let (path, first) = (file.path(), path_text(first.path()));
        if self.windows != found {
            let (mut expected, mut found) = ("of --long-policy window", "without windows");
            if has {
                (expected, found) = (found, expected);
            }
            let what =
                format_args!("expected batches {expected} as in {first}, found batches {found}");
            return Err(EngineError::data(path_text(path), what));
        }
        if self.origin != origin || self.labels != file.labels() {
            let what = format_args!(
                "not of the same set of shards as {first}: its FASTA, its sample or the options of fasta-shard or pack-batches are others"
            );
            return Err(EngineError::data(path_text(path), what));
        }
        Ok(())
    }

    /// Checks that embeddings with the `options` of this run belong to the known datasets whose sequences the batches lack.
    pub(crate) fn check_known(&self, options: &BTreeMap<String, Value>) -> Result<(), EngineError> {
        let Some(first) = self.files.first() else {
            return Ok(());
        };
        let known = EmbeddingWork::required(&first.provenance().options);
        match known.and_then(|known| known.difference(&EmbeddingWork::new(options))) {
            Some(difference) => Err(EngineError::data(
                path_text(first.path()),
                format_args!(
                    "the sequences of earlier datasets are left out (fasta-shard --known), and their embeddings were made otherwise: {difference}"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The rows of a record batch that are batches of their own; none of one that is not cut. Many contacts exceed an array.
    fn rows_apart(&self, packed: &PackedBatch, config: &RunConfig) -> Vec<Option<usize>> {
        let pairs = (0..packed.sequences()).map(|row| packed.residues(row).pow(2));
        let exceed = || pairs.sum::<usize>() * config.store_dtype.bytes() > ROW_BYTES;
        if self.masking.is_some() || (config.outputs.contacts && exceed()) {
            (0..packed.sequences()).map(Some).collect()
        } else {
            vec![None]
        }
    }

    /// Makes the batch of a record batch, or of a row of it with the passes of its masked copies, if there are any.
    fn cut(
        &self,
        name: String,
        packed: &PackedBatch,
        row: Option<usize>,
        budget: Option<u64>,
    ) -> Batch {
        let mut batch = match row {
            None => Batch::new(name, packed.clone(), Vec::new(), budget),
            Some(row) => {
                let (id, span) = (packed.ids().value(row), packed.span(row));
                let masking = self.masking.as_ref();
                let passes = masking.map(|masking| masking.passes(id, span, budget));
                Batch::new(name, packed.alone(row), passes.unwrap_or_default(), None)
            }
        };
        batch.stitched = self.stitched();
        batch
    }

    /// Adds the next batch of the run to the totals.
    fn count(&mut self, batch: &Batch) {
        for row in batch.output_rows() {
            self.rows += 1;
            self.truncated += u64::from(batch.packed.truncated().value(row));
        }
        let (sequences, tokens) = self.largest_batch;
        let own = batch.largest();
        self.largest_batch = (sequences.max(own.0), tokens.max(own.1));
        self.longest = self.longest.max(batch.event.longest.unwrap_or(0) as usize);
        self.total.add(&Workload::of(batch));
    }

    /// The name of the sample, if there is one.
    pub(crate) fn sample(&self) -> Option<&str> {
        self.origin.get(SAMPLE).and_then(Value::as_str)
    }

    /// Whether the windows of a protein are stitched into one row.
    pub(crate) fn stitched(&self) -> bool {
        self.windows == Some(Windows::Stitch)
    }

    /// Plans the blocks of the output. A block ends with the batch that takes it to the estimated size of a row group, or with the
    /// first batch after that at whose end all rows precede all later ones.
    pub(crate) fn blocks(&self, layout: &EmbeddingLayout) -> Vec<Range<u64>> {
        let bytes = |size: &Workload| -> u64 {
            let values = layout.columns.iter().map(|column| match column {
                Column::Pooled { .. } => size.rows * layout.dim as u64,
                Column::Residues(_) => size.residues * layout.dim as u64,
                Column::Logits => size.residues * layout.logits as u64,
                Column::Contacts => size.pairs,
                Column::LogProbs => size.residues * AMINO_ACIDS.len() as u64,
                Column::LogLikelihood => size.rows,
            });
            values.sum::<u64>() * layout.dtype.bytes() as u64
        };
        let mut blocks = Vec::new();
        let (mut start, mut block) = (0, Workload::default());
        for (index, batch) in (0..).zip(&self.batches) {
            block.add(&batch.size);
            let full =
                block.rows >= ROW_GROUP_ROWS as u64 || bytes(&block) >= ROW_GROUP_BYTES as u64;
            let next = self.batches.get(index as usize + 1);
            // Each shard may hold every tenth protein, for example: then the block is all of its file.
            let ends = next.is_none_or(|next| {
                let file_ends = next.file != batch.file;
                if batch.sorted { full } else { file_ends }
            });
            if ends {
                blocks.push(start..index + 1);
                (start, block) = (index + 1, Workload::default());
            }
        }
        blocks
    }

    /// Whether no protein has windows both in these batches and in others.
    pub(crate) fn is_whole(&self, batches: &Range<u64>) -> bool {
        let cut_before = |batch: u64| {
            let before = batch.checked_sub(1);
            before.is_some_and(|before| !self.batches[before as usize].at_boundary)
        };
        !cut_before(batches.start) && !cut_before(batches.end)
    }

    /// The largest token budget of a file.
    pub(crate) fn token_budget(&self) -> Option<u64> {
        self.files.iter().filter_map(token_budget).max()
    }

    /// Returns the work of the batches whose positions are `wanted`.
    pub(crate) fn workload(&self, wanted: impl Fn(u64) -> bool) -> Workload {
        let mut workload = Workload::default();
        let batches = (0..).zip(&self.batches);
        for (_, batch) in batches.filter(|&(index, _)| wanted(index)) {
            workload.add(&batch.size);
        }
        workload
    }

    /// Reads the batches whose positions are `wanted`, in order. Others are not read.
    pub(crate) fn batches_where(
        &self,
        wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = Result<Batch, EngineError>> {
        let batches = (0..).zip(&self.batches);
        let batches = batches.filter(move |&(index, _)| wanted(index));
        batches.map(|(index, planned)| {
            let file = &self.files[planned.file];
            let packed = file.batch(planned.record_batch)?;
            let name = batch_name(file.path(), planned.record_batch);
            let mut batch = self.cut(name, &packed, planned.row, token_budget(file));
            (batch.event.batch, batch.event.tail) = (index, planned.tail);
            batch.at_boundary = planned.at_boundary;
            Ok(batch)
        })
    }
}

/// Names a record batch of a batches file in messages.
fn batch_name(path: &Path, record_batch: usize) -> String {
    format!("{}: record batch {record_batch}", path_text(path))
}

/// Returns whether all rows up to the end of each batch precede all later rows, given the smallest and largest ordinal of each batch.
fn sorted(batches: &[(Option<u64>, Option<u64>)]) -> Vec<bool> {
    let mut largest = None;
    let before = batches.iter().map(|&(_, last)| {
        largest = largest.max(last);
        largest
    });
    let before: Vec<Option<u64>> = before.collect();
    let mut smallest = u64::MAX;
    let ends = batches.iter().zip(before).rev().map(|(&(first, _), last)| {
        let sorted = last.is_none_or(|last| last < smallest);
        smallest = smallest.min(first.unwrap_or(u64::MAX));
        sorted
    });
    let mut ends: Vec<bool> = ends.collect();
    ends.reverse();
    ends
}

/// Returns the position of the emptiest batch, the last of equals. A batch above the budget holds one long sequence and does not
/// count.
fn tail(
    tokens: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator,
    budget: Option<u64>,
) -> Option<usize> {
    let budget = budget.unwrap_or(u64::MAX);
    let batches = tokens.enumerate().rev();
    let batches = batches.filter(|&(_, tokens)| tokens <= budget);
    let emptiest = batches.min_by_key(|&(_, tokens)| tokens);
    emptiest.map(|(batch, _)| batch)
}

fn token_budget(file: &BatchesFile) -> Option<u64> {
    file.provenance().options.get("max_batch_tokens")?.as_u64()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_block_ends_where_no_later_row_precedes_it() {
        let sorted = |batches: &[(u64, u64)]| {
            let batches: Vec<_> = batches.iter().map(|&(a, b)| (Some(a), Some(b))).collect();
            super::sorted(&batches)
        };
        let sections = [(0, 4), (1, 5), (6, 9), (10, 10)];
        assert_eq!(sorted(&sections), [false, true, true, true]);
        // Two windows of one protein.
        assert_eq!(sorted(&[(0, 1), (1, 2)]), [false, true]);
        // Two shards with every second protein each.
        let twice = [(0, 6), (2, 4), (1, 7), (3, 5)];
        assert_eq!(sorted(&twice), [false, false, false, true]);
        assert_eq!(sorted(&[]), [false; 0]);
    }

    #[test]
    fn the_emptiest_batch_is_the_tail() {
        let tail = |tokens: &[u64], budget| super::tail(tokens.iter().copied(), budget);
        assert_eq!(tail(&[], Some(10)), None);
        assert_eq!(tail(&[10, 4, 9, 4, 8], Some(10)), Some(3));
        assert_eq!(tail(&[12], Some(10)), None, "a long sequence alone");
        assert_eq!(tail(&[12, 10], Some(10)), Some(1));
        assert_eq!(tail(&[12, 10], None), Some(1));
    }
}
