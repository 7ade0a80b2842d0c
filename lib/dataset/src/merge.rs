//! Reads the rows of all parts in the order of the input.
//!
//! A part is one or several *runs*: consecutive row groups whose rows are in order. Runs are merged by ordinal and start. Of a run,
//! memory holds a window of rows at most. A window ends with a page where it can, so that no page is decoded twice.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use plmkit_contract::{KeyColumns, RowDigest, RowKey, ordinals as ordinals_of};
use plmkit_kit::{Quoted, Stop};
use plmkit_store::{EmbeddingsFile, GroupSummary, StoreError, check_digest};

use crate::{AskedIds, DatasetError, DatasetPart};

/// The bytes of all windows together.
const WINDOW_BYTES: u64 = 512 << 20;
/// The most bytes of a window of more than one row.
const MOST_WINDOW_BYTES: u64 = 8 << 20;
/// The most files that are open at once: the usual limit is 1,024.
const OPEN_FILES: usize = 256;
/// The rows that are returned at once, at most.
pub(crate) const BATCH_ROWS: usize = 1024;

/// Reads the rows of all parts, sorted by ordinal and start.
pub struct Merge<'a> {
    parts: &'a [DatasetPart],
    /// The places of the columns that are read: all keys, and some computed columns.
    columns: Vec<usize>,
    /// All by default.
    asked: Option<Box<Rows<'a>>>,
    stop: &'a Stop,
    runs: Vec<SortedRun>,
    /// Ordinal and start of the next row of each run, or a bound below them.
    heap: BinaryHeap<Reverse<((u64, u32), usize)>>,
    /// The last row that was returned, or the first of its record.
    last: Option<(u64, u32)>,
    /// The most windows at the same time.
    depth: u64,
    window_bytes: u64,
    /// The digest of the rows of each part so far, if all rows are read with all columns.
    read: Option<Vec<RowDigest>>,
}

/// Finds the rows of a row group that are read.
type Rows<'a> =
    dyn Fn(&EmbeddingsFile, usize, &DatasetPart) -> Result<Vec<usize>, DatasetError> + Send + 'a;

/// Consecutive row groups of a part whose rows are in order.
struct SortedRun {
    part: usize,
    /// The groups that are not read yet, the current one first.
    groups: Range<usize>,
    /// The rows of the current group that are not read yet, once they are known.
    rows: Option<VecDeque<Range<usize>>>,
    /// Decoded rows that were not returned yet.
    window: Option<RecordBatch>,
    file: Option<Arc<EmbeddingsFile>>,
}

impl<'a> Merge<'a> {
    /// Starts to read the rows of `parts`, which have the same columns. `columns` are the places of computed columns in
    /// [`EmbeddingLayout::columns`](plmkit_contract::EmbeddingLayout::columns).
    pub fn new(
        parts: &'a [DatasetPart],
        columns: impl IntoIterator<Item = usize>,
        stop: &'a Stop,
    ) -> Self {
        let keys = parts[0].layout.keys();
        let columns = (0..keys).chain(columns.into_iter().map(|column| keys + column));
        let columns: Vec<usize> = columns.collect();
        let has_all = columns.len() == keys + parts[0].layout.columns.len();
        let mut merge = Self {
            parts,
            read: has_all.then(|| vec![RowDigest::default(); parts.len()]),
            columns,
            asked: None,
            stop,
            runs: Vec::new(),
            heap: BinaryHeap::new(),
            last: None,
            depth: 0,
            window_bytes: 0,
        };
        for (part, DatasetPart { groups, .. }) in parts.iter().enumerate() {
            merge.runs.extend(runs(groups).map(|groups| SortedRun {
                part,
                groups,
                rows: None,
                window: None,
                file: None,
            }));
        }
        merge.depth = merge.depth().max(1) as u64;
        for run in 0..merge.runs.len() {
            merge.queue(run);
        }
        merge.within(WINDOW_BYTES)
    }

    /// Keeps the bytes of all windows together below `bytes`, as far as each has one row.
    #[must_use]
    pub(crate) fn within(mut self, bytes: u64) -> Self {
        self.window_bytes = (bytes / self.depth).min(MOST_WINDOW_BYTES);
        self
    }

    /// Returns the bytes of all windows together.
    pub(crate) fn bytes(&self) -> u64 {
        self.window_bytes * self.depth
    }

    /// Reads only the rows of these ids, which are found then.
    #[must_use]
    pub fn of_ids(mut self, ids: &'a AskedIds) -> Self {
        self.read = None;
        self.asked = Some(Box::new(|file, group, part| {
            if let Some(few) = ids.few()
                && !file.may_have(group, few)?
            {
                return Ok(Vec::new());
            }
            Ok(file.rows_with(group, |id| ids.find(id, part.offset))?)
        }));
        self
    }

    /// Reads only the rows of these ordinals, which are sorted.
    #[must_use]
    pub(crate) fn of_ordinals(mut self, asked: &'a [u64]) -> Self {
        self.read = None;
        self.asked = Some(Box::new(|file, group, part| {
            let GroupSummary { rows, ordinals, .. } = part.groups[group];
            let start = asked.partition_point(|&ordinal| ordinal < ordinals.0);
            if asked.get(start).is_none_or(|&ordinal| ordinal > ordinals.1) {
                return Ok(Vec::new());
            }
            let keys = part.own(file.read(group, slice::from_ref(&(0..rows)), [0])?)?;
            let rows = ordinals_of(&keys).iter().enumerate();
            let rows = rows.filter(|(_, ordinal)| asked.binary_search(ordinal).is_ok());
            Ok(rows.map(|(row, _)| row).collect())
        }));
        self
    }

    /// Returns the next rows; `None` after the last.
    pub fn next_rows(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        self.next(u64::MAX)
    }

    /// Whether all rows were returned.
    pub(crate) fn is_done(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns at most `room` rows, and any further rows of the last record. `None` if there is no more, or no room.
    pub(crate) fn next(&mut self, room: u64) -> Result<Option<RecordBatch>, DatasetError> {
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(BATCH_ROWS);
        let (mut taken, mut count) = (Vec::new(), 0);
        while let Some(&Reverse((key, run))) = self.heap.peek() {
            StoreError::check(self.stop)?;
            if !self.is_of_last(key) && count >= room {
                break;
            }
            self.heap.pop();
            if self.runs[run].window.is_none() {
                self.load(run)?;
            }
            if let Some(window) = self.runs[run].window.take() {
                let rows = self.take_rows(run, &window, room.saturating_sub(count))?;
                count += rows.num_rows();
                taken.push(rows);
            }
            self.queue(run);
        }
        let all_read = self.read.take_if(|_| self.heap.is_empty());
        for (part, read) in self.parts.iter().zip(all_read.into_iter().flatten()) {
            check_digest(&part.path, part.digest, read)?;
        }
        taken.retain(|rows| rows.num_rows() > 0);
        let rows = match taken.as_slice() {
            [] => return Ok(None),
            [rows] => Ok(rows.clone()),
            [first, ..] => concat_batches(first.schema_ref(), &taken),
        };
        let rows = rows.map_err(|error| DatasetError::content("rows".as_ref(), error));
        rows.map(Some)
    }

    /// Whether a row is of the record of the last one.
    fn is_of_last(&self, key: (u64, u32)) -> bool {
        self.last.is_some_and(|(ordinal, _)| ordinal == key.0)
    }

    /// Takes at most `room` rows of the window of a run, and any further rows of the last record, up to the next row of another run.
    fn take_rows(
        &mut self,
        run: usize,
        window: &RecordBatch,
        room: usize,
    ) -> Result<RecordBatch, DatasetError> {
        let others = self.heap.peek();
        let others = others.map_or((u64::MAX, u32::MAX), |&Reverse((key, _))| key);
        let mut count = 0;
        for row in KeyColumns::new(window).rows() {
            let key = row.sort_key();
            if key > others || (!self.is_of_last(key) && count >= room) {
                let rest = window.slice(count, window.num_rows() - count);
                self.runs[run].window = Some(rest);
                break;
            }
            if self.last.is_some_and(|last| key <= last) {
                return Err(out_of_order(&self.parts[self.runs[run].part], &row));
            }
            self.last = Some(key);
            count += 1;
        }
        Ok(window.slice(0, count))
    }

    /// Puts a run back to the others, with its next row or a bound of it; leaves it out if it has no more.
    fn queue(&mut self, run: usize) {
        let SortedRun {
            part,
            groups,
            rows,
            window,
            file,
        } = &mut self.runs[run];
        let all = &self.parts[*part].groups;
        if let Some(window) = window {
            let key = KeyColumns::new(window).row(0).sort_key();
            return self.heap.push(Reverse((key, run)));
        }
        while let Some(group) = all[groups.clone()].first() {
            if group.rows > 0 && rows.as_ref().is_none_or(|rows| !rows.is_empty()) {
                let bound = (group.ordinals.0, 0);
                let bound = self.last.map_or(bound, |last| bound.max(last));
                return self.heap.push(Reverse((bound, run)));
            }
            groups.next();
            *rows = None;
        }
        *file = None;
    }

    /// Reads the next window of a run, if its group has more rows.
    fn load(&mut self, run: usize) -> Result<(), DatasetError> {
        let keeps_open = self.depth <= OPEN_FILES as u64;
        let run = &mut self.runs[run];
        let part = &self.parts[run.part];
        let file = match &run.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(part.reopen()?),
        };
        run.file = keeps_open.then(|| Arc::clone(&file));
        let group = run.groups.start;
        let summary = &part.groups[group];
        let rows = match &mut run.rows {
            Some(rows) => rows,
            none => none.insert(match &self.asked {
                None => iter::once(0..summary.rows).collect(),
                Some(asked) => ranges(asked(&file, group, part)?),
            }),
        };
        let row_bytes = (summary.bytes / summary.rows.max(1) as u64).max(1);
        let most = ((self.window_bytes / row_bytes) as usize).max(1);
        let ranges = next_window(rows, most, || file.page_starts(group))?;
        if !ranges.is_empty() {
            let rows = file.read(group, &ranges, self.columns.iter().copied())?;
            if let Some(read) = &mut self.read {
                let digested = read[run.part].update(&rows);
                digested.map_err(|what| DatasetError::content(&part.path, what))?;
            }
            run.window = Some(part.own(rows)?);
        }
        Ok(())
    }

    /// The most runs whose ranges of ordinals have a common ordinal.
    fn depth(&self) -> usize {
        let mut ends: Vec<(u64, bool)> = Vec::new();
        for SortedRun { part, groups, .. } in &self.runs {
            let groups = &self.parts[*part].groups[groups.clone()];
            if let [first, .., last] | [first @ last] = groups {
                ends.extend([(first.ordinals.0, false), (last.ordinals.1, true)]);
            }
        }
        ends.sort_unstable();
        let (mut depth, mut most) = (0, 0);
        for (_, is_end) in ends {
            depth = if is_end { depth - 1 } else { depth + 1 };
            most = depth.max(most);
        }
        most
    }
}

/// Divides row groups into runs whose rows are in order.
fn runs(groups: &[GroupSummary]) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    let in_order = |one: &GroupSummary, next: &GroupSummary| one.ordinals.1 <= next.ordinals.0;
    groups.chunk_by(in_order).map(move |run| {
        end += run.len();
        end - run.len()..end
    })
}

/// Takes the first `most` rows of `todo`. They end with a page if one does not exceed them.
fn next_window(
    todo: &mut VecDeque<Range<usize>>,
    most: usize,
    page_starts: impl Fn() -> Result<Vec<usize>, StoreError>,
) -> Result<Vec<Range<usize>>, StoreError> {
    let mut ranges = Vec::new();
    let mut left = most;
    while left > 0
        && let Some(range) = todo.pop_front()
    {
        let mut end = range.end.min(range.start + left);
        left -= end - range.start;
        if end < range.end {
            if ranges.is_empty() {
                let starts = page_starts()?;
                let pages = starts.into_iter().take_while(|&start| start <= end);
                end = pages
                    .filter(|&page| page > range.start)
                    .last()
                    .unwrap_or(end);
            }
            todo.push_front(end..range.end);
        }
        ranges.push(range.start..end);
    }
    Ok(ranges)
}

/// Joins consecutive rows.
fn ranges(rows: Vec<usize>) -> VecDeque<Range<usize>> {
    let mut ranges: VecDeque<Range<usize>> = VecDeque::new();
    for row in rows {
        match ranges.back_mut() {
            Some(range) if range.end == row => range.end += 1,
            _ => ranges.push_back(row..row + 1),
        }
    }
    ranges
}

fn out_of_order(part: &DatasetPart, row: &RowKey<'_>) -> DatasetError {
    let what = format!(
        "ordinal {} {}: expected every row once and in the order of the input, found it again or too late",
        row.ordinal,
        Quoted(row.id)
    );
    DatasetError::content(&part.path, what)
}
