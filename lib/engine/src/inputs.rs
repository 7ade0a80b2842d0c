//! The opened and verified batches files of a run, with totals over them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use plmkit_contract::{
    AMINO_ACIDS, Column, DESCRIPTION, EmbeddingLayout, EmbeddingWork, Labels, SAMPLE, SOURCE, Stop,
    WINDOWS, path_text,
};
use plmkit_store::{BatchesFile, FileKind, PackedBatch, ROW_GROUP_BYTES, ROW_GROUP_ROWS};
use serde_json::Value;

use crate::batch::{Batch, output_rows};
use crate::config::Windows;
use crate::masking::Masking;
use crate::stitch::WindowOrder;
use crate::{EngineError, RunConfig};

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
    /// The work of a batch whose tokens are computed so many `times`.
    fn of(packed: &PackedBatch, times: u64) -> Self {
        let residues = (0..packed.sequences()).map(|row| packed.residues(row) as u64);
        let rows = packed.sequences() as u64;
        Self {
            batches: 1,
            sequences: rows * times,
            tokens: packed.tokens().len() as u64 * times,
            rows,
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
    pub(crate) masking: Option<Masking>,
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
    /// The work that made the known datasets whose sequences the batches lack.
    pub(crate) known_work: Option<EmbeddingWork>,
}

/// A batch of the run.
#[derive(Debug)]
struct Planned {
    /// The index of its file.
    file: usize,
    /// Its position in the file.
    record_batch: usize,
    /// The only row, if residues of it are masked.
    row: Option<usize>,
    size: Workload,
    /// Whether it is the batch of the leftovers.
    tail: bool,
    /// Whether no protein continues in the next batch.
    at_boundary: bool,
    end: BatchEnd,
}

/// The order of the rows before and after the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchEnd {
    /// A later batch of the file has rows that precede some of the rows so far.
    Overlapping,
    /// All rows so far precede all later rows of the run.
    Sorted,
    /// The file ends, and the next file has rows that precede some of the rows so far: each shard holds every tenth protein, for
    /// example.
    FileEnd,
}

impl RunInputs {
    /// Opens and verifies every file. Checks that no row comes twice and, if windows are to be stitched, that their order permits
    /// it, and that each residue to mask is there.
    pub(crate) fn open(config: &RunConfig, stop: &Stop) -> Result<Self, EngineError> {
        let paths = &config.batches;
        let mut inputs = Self {
            masking: Masking::of(config)?,
            ..Self::default()
        };
        let mut ends_of_proteins = HashMap::new();
        let mut keys = Vec::new();
        let mut ordinal_ranges = Vec::new();
        let mut lengths = Vec::new();
        for (number, path) in (0u32..).zip(paths) {
            let file = BatchesFile::open_unverified(path);
            let mut file = file.map_err(|error| error.of_input(FileKind::Batches))?;
            inputs.check_agreement(&file, config.windows)?;
            let mut order = WindowOrder::default();
            let (first, budget) = (inputs.batches.len(), token_budget(&file));
            file.verify(stop, |record_batch, packed| {
                for row in inputs.rows_apart(&packed) {
                    let (part, passes) = inputs.part(&packed, row, budget);
                    if row.is_some() {
                        let id = part.ids().value(0).to_owned();
                        let end: &mut u64 = ends_of_proteins.entry(id).or_default();
                        *end = part.span(0).range().end.max(*end);
                    }
                    let size = inputs.add_batch(&mut order, &part, &passes);
                    let name = || name_of(path, record_batch);
                    inputs.batches.push(Planned {
                        file: number as usize,
                        record_batch,
                        row,
                        size: size
                            .map_err(|what| EngineError::Batches(format!("{}: {what}", name())))?,
                        tail: false,
                        at_boundary: !order.unfinished(),
                        end: BatchEnd::Overlapping,
                    });
                    let ordinals = part.ordinals().iter().copied();
                    ordinal_ranges.push((ordinals.clone().min(), ordinals.max()));
                }
                let ordinals = packed.ordinals().iter().copied();
                let rows = ordinals.zip(packed.starts().values());
                keys.extend(rows.map(|(ordinal, &start)| (ordinal, start, number)));
                Ok::<_, EngineError>(())
            })?;
            let last = name_of(path, file.len().saturating_sub(1));
            order
                .check_end()
                .map_err(|what| EngineError::Batches(format!("{last}: {what}")))?;
            let own = &mut inputs.batches[first..];
            lengths.push(own.len());
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
        let ends = ends(&ordinal_ranges, lengths.into_iter());
        for (batch, end) in inputs.batches.iter_mut().zip(ends) {
            batch.end = end;
        }
        keys.sort_unstable();
        let mut pairs = keys.windows(2);
        let same_row = |pair: &&[(u64, u32, u32)]| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1);
        if let Some(&[(ordinal, start, first), (.., again)]) = pairs.find(same_row) {
            let first = path_text(&paths[first as usize]);
            let what = format_args!(
                "ordinal {ordinal}, start {start}: already in {first}; expected each row of one set of shards once"
            );
            return Err(EngineError::batches(&paths[again as usize], what));
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
            self.known_work = EmbeddingWork::required(options);
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
            return Err(EngineError::batches(path, what));
        }
        if self.origin != origin || self.labels != file.labels() {
            let what = format_args!(
                "not of the same set of shards as {first}: its FASTA, its sample or the options of fasta-shard or pack-batches are others"
            );
            return Err(EngineError::batches(path, what));
        }
        Ok(())
    }

    /// Checks that embeddings with the `options` of this run belong to the known datasets whose sequences the batches lack.
    pub(crate) fn check_known(&self, options: &BTreeMap<String, Value>) -> Result<(), EngineError> {
        let work = EmbeddingWork::new(options);
        let difference = self
            .known_work
            .as_ref()
            .and_then(|known| known.difference(&work));
        match (difference, self.files.first()) {
            (Some(difference), Some(first)) => {
                let what = format_args!(
                    "the sequences of earlier datasets are left out (fasta-shard --known), and their embeddings were made otherwise: {difference}"
                );
                Err(EngineError::batches(first.path(), what))
            }
            _ => Ok(()),
        }
    }

    /// The rows of a record batch that are batches of their own; none of one that is not cut.
    fn rows_apart(&self, packed: &PackedBatch) -> Vec<Option<usize>> {
        match &self.masking {
            None => vec![None],
            Some(_) => (0..packed.sequences()).map(Some).collect(),
        }
    }

    /// Returns a record batch or a row of it, with the passes of its masked copies.
    fn part(
        &self,
        packed: &PackedBatch,
        row: Option<usize>,
        budget: Option<u64>,
    ) -> (PackedBatch, Vec<Vec<usize>>) {
        let Some((row, masking)) = row.zip(self.masking.as_ref()) else {
            return (packed.clone(), Vec::new());
        };
        let passes = masking.passes(packed.ids().value(row), packed.span(row), budget);
        (packed.alone(row), passes)
    }

    /// Adds the next batch of the run. Returns its size.
    fn add_batch(
        &mut self,
        order: &mut WindowOrder,
        packed: &PackedBatch,
        passes: &[Vec<usize>],
    ) -> Result<Workload, String> {
        if self.stitched() {
            order.check_batch(packed)?;
        }
        for row in output_rows(packed, self.stitched()) {
            self.rows += 1;
            self.truncated += u64::from(packed.truncated().value(row));
        }
        let copies = passes.iter().map(Vec::len);
        let size = Workload::of(packed, 1 + copies.clone().sum::<usize>() as u64);
        let most = copies.max().unwrap_or(1);
        let (sequences, tokens) = self.largest_batch;
        self.largest_batch = (
            sequences.max(packed.sequences() * most),
            tokens.max(packed.tokens().len() * most),
        );
        let offsets = packed.cu_seqlens().windows(2);
        let longest = offsets.map(|pair| (pair[1] - pair[0]) as usize).max();
        self.longest = self.longest.max(longest.unwrap_or(0));
        self.total.add(&size);
        Ok(size)
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
        for (index, &Planned { size, end, .. }) in (0..).zip(&self.batches) {
            block.add(&size);
            let full =
                block.rows >= ROW_GROUP_ROWS as u64 || bytes(&block) >= ROW_GROUP_BYTES as u64;
            let last = index + 1 == self.total.batches;
            if end == BatchEnd::FileEnd || (full && end == BatchEnd::Sorted) || last {
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
            let budget = token_budget(file);
            let packed = file.batch(planned.record_batch)?;
            let (packed, passes) = self.part(&packed, planned.row, budget);
            Ok(Batch {
                index,
                name: name_of(file.path(), planned.record_batch),
                tail: planned.tail,
                // The copies of one sequence fill what they fill.
                token_budget: budget.filter(|_| planned.row.is_none()),
                packed,
                passes,
                stitched: self.stitched(),
                at_boundary: planned.at_boundary,
                saved: None,
            })
        })
    }
}

/// Names a record batch of a batches file in messages.
fn name_of(path: &Path, record_batch: usize) -> String {
    format!("{}: record batch {record_batch}", path_text(path))
}

/// Classifies the end of each batch, given the smallest and largest ordinal of each batch and the number of batches of each file.
fn ends(
    batches: &[(Option<u64>, Option<u64>)],
    files: impl Iterator<Item = usize>,
) -> Vec<BatchEnd> {
    let mut largest = None;
    let before = batches.iter().map(|&(_, last)| {
        largest = largest.max(last);
        largest
    });
    let before: Vec<Option<u64>> = before.collect();
    let mut ends = vec![BatchEnd::Overlapping; batches.len()];
    let mut smallest = u64::MAX;
    for (batch, &(first, _)) in batches.iter().enumerate().rev() {
        if before[batch].is_none_or(|last| last < smallest) {
            ends[batch] = BatchEnd::Sorted;
        }
        smallest = smallest.min(first.unwrap_or(u64::MAX));
    }
    let mut end = 0;
    for batches in files {
        end += batches;
        if let Some(last @ BatchEnd::Overlapping) = ends.get_mut(end.wrapping_sub(1)) {
            *last = BatchEnd::FileEnd;
        }
    }
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
    use super::BatchEnd::{FileEnd, Overlapping, Sorted};

    #[test]
    fn a_block_ends_where_no_later_row_precedes_it() {
        let ends = |batches: &[(u64, u64)], files: &[usize]| {
            let batches: Vec<_> = batches.iter().map(|&(a, b)| (Some(a), Some(b))).collect();
            super::ends(&batches, files.iter().copied())
        };
        let sections = [(0, 4), (1, 5), (6, 9), (10, 10)];
        assert_eq!(ends(&sections, &[4]), [Overlapping, Sorted, Sorted, Sorted]);
        // Two windows of one protein.
        assert_eq!(ends(&[(0, 1), (1, 2)], &[2]), [Overlapping, Sorted]);
        // Two shards with every second protein each.
        let twice = [(0, 6), (2, 4), (1, 7), (3, 5)];
        assert_eq!(
            ends(&twice, &[2, 2]),
            [Overlapping, FileEnd, Overlapping, Sorted]
        );
        assert_eq!(ends(&[], &[0, 0]), []);
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
