//! The opened and verified batches files of a run, and their sums.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{
    Column, DESCRIPTION, EmbeddingLayout, Labels, SAMPLE, SOURCE, Stop, VOCABULARY, WINDOWS,
};
use plmkit_store::{BatchesFile, FileKind, PackedBatch, ROW_GROUP_BYTES};
use serde_json::Value;

use crate::EngineError;
use crate::batch::{Batch, output_rows};
use crate::config::Windows;
use crate::stitch::{Disorder, WindowOrder};

/// Rows of a block, but for those that come before it can end.
const BLOCK_ROWS: usize = 1 << 14;

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) batches: u64,
    pub(crate) sequences: u64,
    pub(crate) tokens: u64,
}

impl Workload {
    fn add_batch(&mut self, size: &BatchShape) {
        self.batches += 1;
        self.sequences += size.sequences as u64;
        self.tokens += size.tokens as u64;
    }
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct BatchShape {
    sequences: usize,
    tokens: usize,
    /// Pairs of residues of one sequence.
    pairs: usize,
}

impl BatchShape {
    fn new(packed: &PackedBatch) -> Self {
        let residues = (0..packed.sequences()).map(|row| packed.residues(row));
        Self {
            sequences: packed.sequences(),
            tokens: packed.tokens().len(),
            pairs: residues.map(|residues| residues * residues).sum(),
        }
    }
}

/// The verified inputs of a run.
#[derive(Debug)]
pub(crate) struct RunInputs {
    files: Vec<Input>,
    /// Over all batches.
    pub(crate) total: Workload,
    /// The rows of the output, embedded or rejected.
    pub(crate) rows: u64,
    /// Of these, the ones of proteins of which residues were cut off.
    pub(crate) truncated: u64,
    /// What becomes of windows; `None` where the batches were not made from windows.
    pub(crate) windows: Option<Windows>,
    /// The columns of the batches beside the key and the tokens.
    pub(crate) labels: Labels,
    /// Which shards all batches come from, and how they are labelled: the options that the output takes over.
    pub(crate) origin: BTreeMap<String, Value>,
    /// The batches at whose end a protein is unfinished, rising.
    unfinished: Vec<u64>,
    /// How the rows so far stand to those of later batches, at the end of each batch.
    ends: Vec<End>,
}

/// What is known of rows at the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A later batch has some that come before some of these.
    Amid,
    /// All of them come before all later ones of the run.
    Sorted,
    /// The next file has some that come before some of these, as where a shard holds every tenth protein: it has an order of its own.
    OfFile,
}

#[derive(Debug)]
struct Input {
    path: Arc<Path>,
    file: BatchesFile,
    /// The size of each batch.
    sizes: Vec<BatchShape>,
    /// The batch that was left over when the others were filled, by its position.
    tail: Option<usize>,
}

impl RunInputs {
    /// The most sequences, and the most tokens, of a batch.
    pub(crate) fn largest_batch(&self) -> (usize, usize) {
        self.sizes().fold((0, 0), |most, size| {
            (most.0.max(size.sequences), most.1.max(size.tokens))
        })
    }

    /// The sizes of all batches, in order.
    fn sizes(&self) -> impl Iterator<Item = &BatchShape> {
        self.files.iter().flat_map(|file| &file.sizes)
    }

    /// Opens and verifies every file. No row is in two of them, and if `windows` are to be stitched, they come in an
    /// order in which that is possible.
    pub(crate) fn open(
        paths: &[PathBuf],
        windows: Windows,
        stop: &Stop,
    ) -> Result<Self, EngineError> {
        let mut inputs = Self {
            files: Vec::with_capacity(paths.len()),
            total: Workload::default(),
            rows: 0,
            truncated: 0,
            windows: None,
            labels: Labels::default(),
            origin: BTreeMap::new(),
            unfinished: Vec::new(),
            ends: Vec::new(),
        };
        let mut keys = Vec::new();
        let mut ordinal_ranges = Vec::new();
        for path in paths {
            let file = BatchesFile::open(path, stop);
            let file = file.map_err(|error| error.of_input(FileKind::Batches))?;
            inputs.check_agreement(path, &file, windows)?;
            let mut order = WindowOrder::default();
            let mut sizes = Vec::with_capacity(file.len());
            for batch in 0..file.len() {
                let packed = file.batch(batch)?;
                inputs
                    .count_rows(&mut order, &packed)
                    .map_err(|disorder| EngineError::windows(path, batch, disorder))?;
                let size = BatchShape::new(&packed);
                inputs.total.add_batch(&size);
                sizes.push(size);
                let ordinals = packed.ordinals().iter().copied();
                ordinal_ranges.push((ordinals.clone().min(), ordinals.clone().max()));
                keys.extend(ordinals.zip(packed.starts().values().iter().copied()));
            }
            let last = file.len().saturating_sub(1);
            order
                .check_end()
                .map_err(|disorder| EngineError::windows(path, last, disorder))?;
            inputs.files.push(Input {
                path: Arc::from(path.as_path()),
                tail: tail(&sizes, token_budget(&file)),
                sizes,
                file,
            });
        }
        let lengths = inputs.files.iter().map(|file| file.sizes.len());
        inputs.ends = ends(&ordinal_ranges, lengths);
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(inputs.doubled_row(pair[0])),
            None => Ok(inputs),
        }
    }

    /// Takes over whether the batches of a file were made from windows, as those of the first were or were not.
    fn check_agreement(
        &mut self,
        path: &Path,
        file: &BatchesFile,
        windows: Windows,
    ) -> Result<(), EngineError> {
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
        let (path, first) = (path.to_owned(), first.path.to_path_buf());
        if self.windows != found {
            let windows = has;
            return Err(EngineError::Mixed {
                path,
                first,
                windows,
            });
        }
        if self.origin != origin || self.labels != file.labels() {
            return Err(EngineError::OtherSource { path, first });
        }
        Ok(())
    }

    /// Counts the rows that the next batch gives, and checks its windows.
    fn count_rows(
        &mut self,
        order: &mut WindowOrder,
        packed: &PackedBatch,
    ) -> Result<(), Disorder> {
        let stitched = self.stitched();
        if stitched {
            order.check_batch(packed)?;
            if order.unfinished() {
                self.unfinished.push(self.total.batches);
            }
        }
        for row in output_rows(packed, stitched) {
            self.rows += 1;
            self.truncated += u64::from(packed.truncated().value(row));
        }
        Ok(())
    }

    /// The sample that all sequences are of, where it has a name.
    pub(crate) fn sample(&self) -> Option<&str> {
        self.origin.get(SAMPLE).and_then(Value::as_str)
    }

    /// Whether the windows of a protein give one row together.
    pub(crate) fn stitched(&self) -> bool {
        self.windows == Some(Windows::Stitch)
    }

    /// The blocks of the output: each ends with the batch that takes it to the size of a row group, as nearly as the batches say, or
    /// the first after it at whose end all rows come before all later ones.
    pub(crate) fn blocks(&self, layout: &EmbeddingLayout) -> Vec<Range<u64>> {
        let bytes = |rows: usize, residues: usize, pairs: usize| -> usize {
            let values = layout.columns.iter().map(|column| match column {
                Column::Pooled(_) => rows * layout.dim,
                Column::Residues(_) => residues * layout.dim,
                Column::Logits => residues * VOCABULARY,
                Column::Contacts => pairs,
            });
            values.sum::<usize>() * layout.dtype.bytes()
        };
        let mut blocks = Vec::new();
        let (mut start, mut rows, mut residues, mut pairs) = (0, 0, 0, 0);
        for ((index, size), &end) in (0..).zip(self.sizes()).zip(&self.ends) {
            rows += size.sequences;
            // <cls> and <eos> are no residues.
            residues += size.tokens - 2 * size.sequences;
            pairs += size.pairs;
            let full = rows >= BLOCK_ROWS || bytes(rows, residues, pairs) >= ROW_GROUP_BYTES;
            let last = index + 1 == self.total.batches;
            if end == End::OfFile || (full && end == End::Sorted) || last {
                blocks.push(start..index + 1);
                (start, rows, residues, pairs) = (index + 1, 0, 0, 0);
            }
        }
        blocks
    }

    /// Whether no protein has windows in these batches and in others.
    pub(crate) fn is_whole(&self, batches: &Range<u64>) -> bool {
        let cut_before = |batch: u64| {
            let before = batch.checked_sub(1);
            before.is_some_and(|before| self.unfinished.binary_search(&before).is_ok())
        };
        !cut_before(batches.start) && !cut_before(batches.end)
    }

    /// The error of a row that comes twice.
    fn doubled_row(&self, (ordinal, start): (u64, u32)) -> EngineError {
        let holds = |packed: &PackedBatch| {
            let keys = packed.ordinals().iter().zip(packed.starts().values());
            keys.into_iter().any(|key| key == (&ordinal, &start))
        };
        let batches = self.batches_where(|_| true).flatten();
        let mut holders = batches.filter(|batch| holds(&batch.packed));
        let first = holders.next().map(|batch| batch.path.to_path_buf());
        let again = holders.next().map(|batch| batch.path.to_path_buf());
        EngineError::Doubled {
            path: again.or_else(|| first.clone()).unwrap_or_default(),
            first: first.unwrap_or_default(),
            ordinal,
            start,
        }
    }

    /// The row digests of the files, in order.
    pub(crate) fn digests(&self) -> Vec<String> {
        let digests = self.files.iter().map(|input| input.file.digest());
        digests.map(|digest| digest.to_string()).collect()
    }

    /// How the rows of each file are packed.
    pub(crate) fn packing(&self) -> Vec<String> {
        let packings = self.files.iter().map(|input| input.file.packing());
        packings.map(ToString::to_string).collect()
    }

    /// The largest token budget that a file was packed for.
    pub(crate) fn token_budget(&self) -> Option<u64> {
        let files = self.files.iter();
        files.filter_map(|input| token_budget(&input.file)).max()
    }

    /// What is left without these batches. The ranges rise and are apart.
    pub(crate) fn workload_without(&self, saved: &[Range<u64>]) -> Workload {
        let mut saved = saved.iter().peekable();
        let mut workload = Workload::default();
        for (index, size) in (0..).zip(self.sizes()) {
            while saved.next_if(|batches| batches.end <= index).is_some() {}
            if !saved.peek().is_some_and(|batches| batches.contains(&index)) {
                workload.add_batch(size);
            }
        }
        workload
    }

    /// Tokens of the batches before this one.
    pub(crate) fn tokens_before(&self, index: u64) -> u64 {
        let sizes = self.sizes().take(index as usize);
        sizes.map(|size| size.tokens as u64).sum()
    }

    /// The batches whose positions are `wanted`, in order. Others are not read.
    pub(crate) fn batches_where(
        &self,
        wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = Result<Batch, EngineError>> {
        let batches = self
            .files
            .iter()
            .flat_map(|input| (0..input.file.len()).map(move |batch| (input, batch)));
        let batches = (0..).zip(batches).filter(move |&(index, _)| wanted(index));
        batches.map(|(index, (input, batch))| {
            Ok(Batch {
                index,
                path: Arc::clone(&input.path),
                index_in_file: batch,
                tail: input.tail == Some(batch),
                token_budget: token_budget(&input.file),
                packed: input.file.batch(batch)?,
                stitched: self.stitched(),
                ends_whole: self.unfinished.binary_search(&index).is_err(),
            })
        })
    }
}

/// What is known at the end of each batch, whose smallest and largest ordinals these are; files have so many batches.
fn ends(batches: &[(Option<u64>, Option<u64>)], files: impl Iterator<Item = usize>) -> Vec<End> {
    let mut largest = None;
    let before = batches.iter().map(|&(_, last)| {
        largest = largest.max(last);
        largest
    });
    let before: Vec<Option<u64>> = before.collect();
    let mut ends = vec![End::Amid; batches.len()];
    let mut smallest = u64::MAX;
    for (batch, &(first, _)) in batches.iter().enumerate().rev() {
        if before[batch].is_none_or(|last| last < smallest) {
            ends[batch] = End::Sorted;
        }
        smallest = smallest.min(first.unwrap_or(u64::MAX));
    }
    let mut end = 0;
    for batches in files {
        end += batches;
        if let Some(last @ End::Amid) = ends.get_mut(end.wrapping_sub(1)) {
            *last = End::OfFile;
        }
    }
    ends
}

/// The emptiest of batches of these sizes, the last of equals. One above the budget has no room left.
fn tail(sizes: &[BatchShape], budget: Option<u64>) -> Option<usize> {
    let budget = budget.map_or(usize::MAX, |budget| budget as usize);
    let batches = sizes.iter().map(|size| size.tokens).enumerate().rev();
    let batches = batches.filter(|&(_, tokens)| tokens <= budget);
    let emptiest = batches.min_by_key(|&(_, tokens)| tokens);
    emptiest.map(|(batch, _)| batch)
}

fn token_budget(file: &BatchesFile) -> Option<u64> {
    file.provenance().options.get("max_batch_tokens")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::BatchShape;
    use super::End::{Amid, OfFile, Sorted};

    #[test]
    fn a_block_ends_where_no_later_row_belongs_into_it() {
        let ends = |batches: &[(u64, u64)], files: &[usize]| {
            let batches: Vec<_> = batches.iter().map(|&(a, b)| (Some(a), Some(b))).collect();
            super::ends(&batches, files.iter().copied())
        };
        let sections = [(0, 4), (1, 5), (6, 9), (10, 10)];
        assert_eq!(ends(&sections, &[4]), [Amid, Sorted, Sorted, Sorted]);
        // Two windows of one protein.
        assert_eq!(ends(&[(0, 1), (1, 2)], &[2]), [Amid, Sorted]);
        // Shards with every second protein: the second file begins anew.
        let twice = [(0, 6), (2, 4), (1, 7), (3, 5)];
        assert_eq!(ends(&twice, &[2, 2]), [Amid, OfFile, Amid, Sorted]);
        assert_eq!(ends(&[], &[0, 0]), []);
    }

    #[test]
    fn the_emptiest_batch_is_the_tail() {
        let tail = |tokens: &[usize], budget| {
            let sizes = tokens.iter().map(|&tokens| BatchShape {
                tokens,
                ..BatchShape::default()
            });
            super::tail(&sizes.collect::<Vec<_>>(), budget)
        };
        assert_eq!(tail(&[], Some(10)), None);
        assert_eq!(tail(&[10, 4, 9, 4, 8], Some(10)), Some(3));
        assert_eq!(tail(&[12], Some(10)), None, "a long sequence alone");
        assert_eq!(tail(&[12, 10], Some(10)), Some(1));
        assert_eq!(tail(&[12, 10], None), Some(1));
    }
}
