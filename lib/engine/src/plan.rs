//! What a run has before it: the opened batches files and their sums.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{
    Column, DESCRIPTION, EmbeddingLayout, Labels, Reason, Reject, SAMPLE, SOURCE, Stop, VOCABULARY,
    WINDOWS,
};
use plmkit_store::{BatchesFile, FileKind, PackedBatch, ROW_GROUP_BYTES};
use serde_json::Value;

use crate::EngineError;
use crate::config::Windows;
use crate::stitch::{Disorder, Order};

/// Rows of a block, but for those that come before it can end.
const BLOCK_ROWS: usize = 1 << 14;

/// How much there is to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) batches: u64,
    pub(crate) sequences: u64,
    pub(crate) tokens: u64,
}

impl Amount {
    /// One more batch, of so many sequences and tokens.
    fn add(&mut self, (sequences, tokens): (usize, usize)) {
        self.batches += 1;
        self.sequences += sequences as u64;
        self.tokens += tokens as u64;
    }
}

/// The verified inputs of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    files: Vec<Input>,
    /// Over all packs.
    pub(crate) total: Amount,
    /// The rows of the output, embedded or rejected.
    pub(crate) rows: u64,
    /// Of these, the ones of proteins of which residues were cut off.
    pub(crate) truncated: u64,
    /// What becomes of windows; `None` where the batches were not made from windows.
    pub(crate) windows: Option<Windows>,
    /// The packs at whose end a protein is unfinished, rising.
    /// The columns of the batches beside the key and the tokens.
    pub(crate) labels: Labels,
    /// Which shards all batches come from, and how they are labelled: the options that the output takes over.
    pub(crate) origin: BTreeMap<String, Value>,
    unfinished: Vec<u64>,
    /// How the rows so far stand to those of later packs, at the end of each pack.
    ends: Vec<End>,
}

/// What is known of rows at the end of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A later pack has some that come before some of these.
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
    /// Sequences and tokens of each pack.
    sizes: Vec<(usize, usize)>,
    /// Pairs of residues of one sequence, in each pack.
    pairs: Vec<usize>,
    /// The batch that was left over when the others were filled, by its position.
    tail: Option<usize>,
}

/// One pack and where it comes from.
#[derive(Debug)]
pub(crate) struct Job {
    /// Position among all packs of the run.
    pub(crate) index: u64,
    /// The batches file.
    pub(crate) path: Arc<Path>,
    /// Position in that file.
    pub(crate) batch_in_file: usize,
    /// Whether it holds what was left over when the other packs of its file were filled.
    pub(crate) tail: bool,
    /// Tokens that the pack might have held, if the file says so.
    pub(crate) token_budget: Option<u64>,
    /// The pack.
    pub(crate) pack: PackedBatch,
    /// Whether the windows of a protein give one row together.
    pub(crate) stitched: bool,
    /// Whether no protein is unfinished at its end.
    pub(crate) ends_whole: bool,
}

impl Job {
    /// Whether a row of the pack is put together with others.
    pub(crate) fn is_window(&self, row: usize) -> bool {
        self.stitched && self.pack.span(row).is_window()
    }

    /// The rows of the pack that give a row of the output, or would if they had values.
    pub(crate) fn output_rows(&self) -> impl Iterator<Item = usize> {
        (0..self.pack.sequences()).filter(|&row| gives_row(&self.pack, row, self.stitched))
    }

    /// The key of the row of the output that a row of the pack gives: ordinal and start.
    pub(crate) fn key(&self, row: usize) -> (u64, u32) {
        let start = if self.stitched {
            0
        } else {
            self.pack.starts().value(row)
        };
        (self.pack.ordinals()[row], start)
    }

    /// The line of the rejects for a row of the pack.
    pub(crate) fn reject(&self, row: usize, reason: Reason) -> Reject {
        let (ordinal, start) = self.key(row);
        Reject {
            ordinal,
            id: self.pack.ids().value(row).to_owned(),
            length: u64::from(self.pack.lengths().value(row)),
            reason,
            start: Some(start),
        }
    }
}

/// Whether a row of a pack gives one of the output: of windows put together, the last.
fn gives_row(pack: &PackedBatch, row: usize, stitched: bool) -> bool {
    let span = pack.span(row);
    !stitched || !span.is_window() || span.is_last()
}

impl Plan {
    /// The most sequences, and the most tokens, of a pack.
    pub(crate) fn largest(&self) -> (usize, usize) {
        let sizes = self.files.iter().flat_map(|file| &file.sizes);
        sizes.fold((0, 0), |most, size| {
            (most.0.max(size.0), most.1.max(size.1))
        })
    }

    /// Opens and verifies every file. No row is in two of them, and if `windows` are to be stitched, they come in an
    /// order in which that is possible.
    pub(crate) fn open(
        paths: &[PathBuf],
        windows: Windows,
        stop: &Stop,
    ) -> Result<Self, EngineError> {
        let mut plan = Self {
            files: Vec::with_capacity(paths.len()),
            total: Amount::default(),
            rows: 0,
            truncated: 0,
            windows: None,
            labels: Labels::default(),
            origin: BTreeMap::new(),
            unfinished: Vec::new(),
            ends: Vec::new(),
        };
        let mut keys = Vec::new();
        let mut ordinals_of = Vec::new();
        for path in paths {
            let file = BatchesFile::open(path, stop);
            let file = file.map_err(|error| error.of_input(FileKind::Batches))?;
            plan.agree(path, &file, windows)?;
            let mut order = Order::default();
            let mut sizes = Vec::with_capacity(file.len());
            let mut pairs = Vec::with_capacity(file.len());
            for batch in 0..file.len() {
                let pack = file.batch(batch)?;
                let size = (pack.sequences(), pack.tokens().len());
                plan.see(&mut order, &pack)
                    .map_err(|disorder| out_of_order(path, batch, disorder))?;
                plan.total.add(size);
                sizes.push(size);
                let residues = (0..pack.sequences()).map(|row| pack.residues(row));
                pairs.push(residues.map(|residues| residues * residues).sum());
                let (ordinals, starts) = (pack.ordinals(), pack.starts().values());
                let of_pack = ordinals.iter().copied();
                ordinals_of.push((of_pack.clone().min(), of_pack.max()));
                keys.extend(ordinals.iter().copied().zip(starts.iter().copied()));
            }
            let last = file.len().saturating_sub(1);
            order
                .end()
                .map_err(|disorder| out_of_order(path, last, disorder))?;
            plan.files.push(Input {
                path: Arc::from(path.as_path()),
                tail: tail(&sizes, token_budget(&file)),
                sizes,
                pairs,
                file,
            });
        }
        plan.ends = ends(&ordinals_of, plan.files.iter().map(|file| file.sizes.len()));
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(plan.doubled(pair[0])),
            None => Ok(plan),
        }
    }

    /// Takes over whether the batches of a file were made from windows, as those of the first were or were not.
    fn agree(
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

    /// Counts the rows that the next pack gives, and follows its windows.
    fn see(&mut self, order: &mut Order, pack: &PackedBatch) -> Result<(), Disorder> {
        let stitched = self.stitched();
        if stitched {
            order.see(pack)?;
            if order.unfinished() {
                self.unfinished.push(self.total.batches);
            }
        }
        for row in (0..pack.sequences()).filter(|&row| gives_row(pack, row, stitched)) {
            self.rows += 1;
            self.truncated += u64::from(pack.truncated().value(row));
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

    /// The blocks of the output: each ends with the pack that takes it to the size of a row group, as nearly as the packs say, or
    /// the first after it at whose end all rows come before all later ones.
    pub(crate) fn blocks(&self, layout: &EmbeddingLayout) -> Vec<Range<u64>> {
        let columns = layout.columns.iter();
        let bytes = |(rows, residues, pairs): (usize, usize, usize)| -> usize {
            let values = columns.clone().map(|column| match column {
                Column::Pooled(_) => rows * layout.dim,
                Column::Residues(_) => residues * layout.dim,
                Column::Logits => residues * VOCABULARY,
                Column::Contacts => pairs,
            });
            values.sum::<usize>() * layout.dtype.bytes()
        };
        let packs = self
            .files
            .iter()
            .flat_map(|file| file.sizes.iter().zip(&file.pairs));
        let mut blocks = Vec::new();
        let (mut start, mut sum) = (0, (0, 0, 0));
        for (pack, (&(rows, tokens), pairs)) in (0..).zip(packs) {
            // <cls> and <eos> are no residues.
            sum = (sum.0 + rows, sum.1 + tokens - 2 * rows, sum.2 + pairs);
            let full = sum.0 >= BLOCK_ROWS || bytes(sum) >= ROW_GROUP_BYTES;
            let end = self.ends[pack as usize];
            if end == End::OfFile || (full && end == End::Sorted) || pack + 1 == self.total.batches
            {
                blocks.push(start..pack + 1);
                (start, sum) = (pack + 1, (0, 0, 0));
            }
        }
        blocks
    }

    /// Whether no protein has windows in these packs and in others.
    pub(crate) fn is_whole(&self, packs: &Range<u64>) -> bool {
        let cut_before = |pack: u64| {
            let before = pack.checked_sub(1);
            before.is_some_and(|before| self.unfinished.binary_search(&before).is_ok())
        };
        !cut_before(packs.start) && !cut_before(packs.end)
    }

    /// The error of a row that comes twice.
    fn doubled(&self, (ordinal, start): (u64, u32)) -> EngineError {
        let holds = |pack: &PackedBatch| {
            let keys = pack.ordinals().iter().zip(pack.starts().values());
            keys.into_iter().any(|key| key == (&ordinal, &start))
        };
        let mut holders = self.jobs().flatten().filter(|job| holds(&job.pack));
        let first = holders.next().map(|job| job.path.to_path_buf());
        let again = holders.next().map(|job| job.path.to_path_buf());
        let path = again.or_else(|| first.clone()).unwrap_or_default();
        EngineError::Doubled {
            first: first.unwrap_or_default(),
            path,
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
        let files = self.files.iter();
        files
            .map(|input| input.file.packing().to_string())
            .collect()
    }

    /// The largest token budget that a file was packed for.
    pub(crate) fn token_budget(&self) -> Option<u64> {
        let budgets = self
            .files
            .iter()
            .filter_map(|input| token_budget(&input.file));
        budgets.max()
    }

    /// What is left without these batches. The ranges rise and are apart.
    pub(crate) fn amount_without(&self, saved: &[Range<u64>]) -> Amount {
        let mut saved = saved.iter().peekable();
        let mut amount = Amount::default();
        let sizes = self.files.iter().flat_map(|input| &input.sizes);
        for (index, &size) in (0..).zip(sizes) {
            while saved.next_if(|batches| batches.end <= index).is_some() {}
            if !saved.peek().is_some_and(|batches| batches.contains(&index)) {
                amount.add(size);
            }
        }
        amount
    }

    /// Tokens of the packs before this one.
    pub(crate) fn tokens_before(&self, pack: u64) -> u64 {
        let sizes = self.files.iter().flat_map(|input| &input.sizes);
        let tokens = sizes.take(pack as usize).map(|&(_, tokens)| tokens as u64);
        tokens.sum()
    }

    /// Every pack, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Result<Job, EngineError>> {
        self.jobs_where(|_| true)
    }

    /// The packs whose positions are `wanted`, in order. Others are not read.
    pub(crate) fn jobs_where(
        &self,
        wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = Result<Job, EngineError>> {
        let packs = self
            .files
            .iter()
            .flat_map(|input| (0..input.file.len()).map(move |batch| (input, batch)));
        let packs = (0..).zip(packs).filter(move |&(index, _)| wanted(index));
        packs.map(|(index, (input, batch))| {
            Ok(Job {
                index,
                path: Arc::clone(&input.path),
                batch_in_file: batch,
                tail: input.tail == Some(batch),
                token_budget: token_budget(&input.file),
                pack: input.file.batch(batch)?,
                stitched: self.stitched(),
                ends_whole: self.unfinished.binary_search(&index).is_err(),
            })
        })
    }
}

/// What is known at the end of each pack, whose smallest and largest ordinals these are; files have so many packs.
fn ends(packs: &[(Option<u64>, Option<u64>)], files: impl Iterator<Item = usize>) -> Vec<End> {
    let mut largest = None;
    let before = packs.iter().map(|&(_, last)| {
        largest = largest.max(last);
        largest
    });
    let before: Vec<Option<u64>> = before.collect();
    let mut ends = vec![End::Amid; packs.len()];
    let mut smallest = u64::MAX;
    for (pack, &(first, _)) in packs.iter().enumerate().rev() {
        if before[pack].is_none_or(|last| last < smallest) {
            ends[pack] = End::Sorted;
        }
        smallest = smallest.min(first.unwrap_or(u64::MAX));
    }
    let mut end = 0;
    for packs in files {
        end += packs;
        if let Some(last @ End::Amid) = ends.get_mut(end.wrapping_sub(1)) {
            *last = End::OfFile;
        }
    }
    ends
}

fn out_of_order(path: &Path, batch: usize, disorder: Disorder) -> EngineError {
    EngineError::Windows {
        path: path.to_owned(),
        batch,
        ordinal: disorder.ordinal,
        id: disorder.id,
        what: disorder.what,
    }
}

/// The emptiest of packs of these sizes, the last of equals. One above the budget has no room left.
fn tail(sizes: &[(usize, usize)], budget: Option<u64>) -> Option<usize> {
    let budget = budget.map_or(usize::MAX, |budget| budget as usize);
    let packs = sizes.iter().map(|&(_, tokens)| tokens).enumerate().rev();
    let packs = packs.filter(|&(_, tokens)| tokens <= budget);
    packs
        .min_by_key(|&(_, tokens)| tokens)
        .map(|(pack, _)| pack)
}

fn token_budget(file: &BatchesFile) -> Option<u64> {
    file.provenance().options.get("max_batch_tokens")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::End::{Amid, OfFile, Sorted};

    #[test]
    fn a_block_ends_where_no_later_row_belongs_into_it() {
        let ends = |packs: &[(u64, u64)], files: &[usize]| {
            let packs: Vec<_> = packs.iter().map(|&(a, b)| (Some(a), Some(b))).collect();
            super::ends(&packs, files.iter().copied())
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
    fn the_emptiest_pack_is_the_tail() {
        let tail = |tokens: &[usize], budget| {
            let sizes: Vec<_> = tokens.iter().map(|&tokens| (1, tokens)).collect();
            super::tail(&sizes, budget)
        };
        assert_eq!(tail(&[], Some(10)), None);
        assert_eq!(tail(&[10, 4, 9, 4, 8], Some(10)), Some(3));
        assert_eq!(tail(&[12], Some(10)), None, "a long sequence alone");
        assert_eq!(tail(&[12, 10], Some(10)), Some(1));
        assert_eq!(tail(&[12, 10], None), Some(1));
    }
}
