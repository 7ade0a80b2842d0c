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
use plmkit_contract::{KeyColumns, Quoted, RowKey, Stop, ordinals};
use plmkit_store::{EmbeddingsFile, GroupSummary, StoreError};

use crate::{AskedIds, DatasetError, Part, Parts};

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
    parts: &'a [Part],
    /// The places of the columns that are read: all keys, and some computed columns.
    columns: Vec<usize>,
    asked: Asked<'a>,
    stop: &'a Stop,
    runs: Vec<Run>,
    /// The key of the next row of each run, or a bound below it.
    heap: BinaryHeap<Reverse<(Key, usize)>>,
    /// The last row that was returned, or the first of its record.
    last: Option<Key>,
    /// The most windows at the same time.
    depth: u64,
    window_bytes: u64,
    keeps_open: bool,
}

/// Which rows are read.
#[derive(Clone, Copy)]
enum Asked<'a> {
    All,
    Ids(&'a AskedIds),
    /// Sorted.
    Ordinals(&'a [u64]),
}

/// Ordinal and start.
type Key = (u64, u32);

/// Consecutive row groups of a part whose rows are in order.
#[derive(Debug)]
struct Run {
    part: usize,
    /// The groups that are not read yet, but for the current one.
    groups: Range<usize>,
    /// The current group, with its rows that are not read yet.
    current: Option<(usize, VecDeque<Range<usize>>)>,
    /// Decoded rows that were not returned yet.
    window: Option<RecordBatch>,
    file: Option<Arc<EmbeddingsFile>>,
}

impl<'a> Merge<'a> {
    /// Starts to read the rows of `parts`. `columns` are the places of computed columns in
    /// [`EmbeddingLayout::columns`](plmkit_contract::EmbeddingLayout::columns).
    pub fn new(parts: &'a Parts, columns: impl IntoIterator<Item = usize>, stop: &'a Stop) -> Self {
        let keys = parts.layout.keys();
        let columns = (0..keys).chain(columns.into_iter().map(|column| keys + column));
        let mut merge = Self {
            parts: &parts.parts,
            columns: columns.collect(),
            asked: Asked::All,
            stop,
            runs: Vec::new(),
            heap: BinaryHeap::new(),
            last: None,
            depth: 0,
            window_bytes: 0,
            keeps_open: true,
        };
        for (part, Part { groups, .. }) in parts.parts.iter().enumerate() {
            for groups in runs(groups) {
                merge.runs.push(Run {
                    part,
                    groups,
                    current: None,
                    window: None,
                    file: None,
                });
            }
        }
        let depth = merge.depth();
        merge.depth = depth.max(1) as u64;
        merge.keeps_open = depth <= OPEN_FILES;
        merge = merge.within(WINDOW_BYTES);
        for run in 0..merge.runs.len() {
            merge.enter_group(run);
        }
        merge
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

    /// Reads only the rows of these ids.
    #[must_use]
    pub fn of_ids(mut self, ids: &'a AskedIds) -> Self {
        self.asked = Asked::Ids(ids);
        self
    }

    /// Reads only the rows of these ordinals, which are sorted.
    #[must_use]
    pub(crate) fn of_ordinals(mut self, ordinals: &'a [u64]) -> Self {
        self.asked = Asked::Ordinals(ordinals);
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
            if self.stop.requested() {
                return Err(DatasetError::stopped());
            }
            let of_last = self.last.is_some_and(|(ordinal, _)| ordinal == key.0);
            if !of_last && count >= room {
                break;
            }
            self.heap.pop();
            if self.runs[run].window.is_some() || self.load(run)? {
                let rows = self.take_rows(run, room.saturating_sub(count))?;
                count += rows.num_rows();
                taken.push(rows);
            }
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

    /// The smallest key of the other runs.
    fn next_of_others(&self) -> Key {
        self.heap
            .peek()
            .map_or((u64::MAX, u32::MAX), |&Reverse((key, _))| key)
    }

    /// Takes at most `room` rows of the window of a run, and any further rows of the last record, up to the next row of another run.
    fn take_rows(&mut self, run: usize, room: usize) -> Result<RecordBatch, DatasetError> {
        let others = self.next_of_others();
        let Run { part, window, .. } = &mut self.runs[run];
        let rows = window.take().expect("a run with a window");
        let mut count = 0;
        let mut next = None;
        for row in KeyColumns::new(&rows).rows() {
            let key = row.sort_key();
            let of_last = self.last.is_some_and(|(ordinal, _)| ordinal == key.0);
            if key > others || (!of_last && count >= room) {
                next = Some(key);
                break;
            }
            if self.last.is_some_and(|last| key <= last) {
                return Err(out_of_order(&self.parts[*part], &row));
            }
            self.last = Some(key);
            count += 1;
        }
        if let Some(key) = next {
            *window = Some(rows.slice(count, rows.num_rows() - count));
            self.heap.push(Reverse((key, run)));
        } else {
            self.continue_run(run);
        }
        Ok(rows.slice(0, count))
    }

    /// Puts a run without a window back to the others, with a bound of its next row.
    fn continue_run(&mut self, run: usize) {
        let Run { part, current, .. } = &self.runs[run];
        match current {
            Some((group, todo)) if !todo.is_empty() => {
                let bound = (self.parts[*part].groups[*group].ordinals.0, 0);
                let last = self.last.map_or(bound, |last| bound.max(last));
                self.heap.push(Reverse((last, run)));
            }
            _ => self.enter_group(run),
        }
    }

    /// Lets a run begin its next group.
    fn enter_group(&mut self, run: usize) {
        let Run {
            part,
            groups,
            current,
            file,
            ..
        } = &mut self.runs[run];
        for group in groups.by_ref() {
            let summary = &self.parts[*part].groups[group];
            if summary.rows > 0 {
                *current = Some((group, iter::once(0..summary.rows).collect()));
                self.heap.push(Reverse(((summary.ordinals.0, 0), run)));
                return;
            }
        }
        (*current, *file) = (None, None);
    }

    /// Reads the next window of a run. Returns false if its group has no more rows: then it has entered the next one.
    fn load(&mut self, run: usize) -> Result<bool, DatasetError> {
        let file = self.open(run)?;
        let Run { part, current, .. } = &mut self.runs[run];
        let Some((group, todo)) = current else {
            return Ok(false);
        };
        let summary = &self.parts[*part].groups[*group];
        if todo.front() == Some(&(0..summary.rows)) {
            match self.asked {
                Asked::All => {}
                Asked::Ids(ids) => *todo = rows_of_ids(&file, *group, ids)?,
                Asked::Ordinals(asked) => {
                    *todo = rows_of_ordinals(&file, *group, &self.parts[*part], asked)?;
                }
            }
        }
        let row_bytes = (summary.bytes / summary.rows.max(1) as u64).max(1);
        let most = ((self.window_bytes / row_bytes) as usize).max(1);
        let ranges = next_window(todo, most, || file.page_starts(*group))?;
        if ranges.is_empty() {
            todo.clear();
            self.continue_run(run);
            return Ok(false);
        }
        let rows = file.read(*group, &ranges, self.columns.iter().copied())?;
        let rows = self.parts[*part].own(rows)?;
        let key = KeyColumns::new(&rows).row(0).sort_key();
        self.runs[run].window = Some(rows);
        if key > self.next_of_others() {
            self.heap.push(Reverse((key, run)));
            return Ok(false);
        }
        Ok(true)
    }

    /// Opens the part of a run.
    fn open(&mut self, run: usize) -> Result<Arc<EmbeddingsFile>, StoreError> {
        let Run { part, file, .. } = &mut self.runs[run];
        if let Some(file) = file {
            return Ok(Arc::clone(file));
        }
        let opened = Arc::new(self.parts[*part].reopen()?);
        if self.keeps_open {
            *file = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    /// The most runs whose ranges of ordinals have a common ordinal.
    fn depth(&self) -> usize {
        let mut ends: Vec<(u64, bool)> = Vec::new();
        for Run { part, groups, .. } in &self.runs {
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
fn runs(groups: &[GroupSummary]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (place, group) in groups.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if groups[place - 1].ordinals.1 <= group.ordinals.0 => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

/// Takes the first `most` rows of `todo`. They end with a page if one does not exceed them.
fn next_window(
    todo: &mut VecDeque<Range<usize>>,
    most: usize,
    page_starts: impl FnOnce() -> Result<Vec<usize>, StoreError>,
) -> Result<Vec<Range<usize>>, StoreError> {
    let mut ranges = Vec::new();
    let mut left = most;
    while left > 0
        && let Some(range) = todo.pop_front()
    {
        let mut end = range.end.min(range.start + left);
        if end < range.end && ranges.is_empty() {
            let starts = page_starts()?;
            let page = starts[..starts.partition_point(|&start| start <= end)].last();
            end = page
                .copied()
                .filter(|&page| page > range.start)
                .unwrap_or(end);
            todo.push_front(end..range.end);
            ranges.push(range.start..end);
            break;
        }
        if end < range.end {
            todo.push_front(end..range.end);
        }
        left -= end - range.start;
        ranges.push(range.start..end);
    }
    Ok(ranges)
}

/// The rows of a group whose ids are asked.
fn rows_of_ids(
    file: &EmbeddingsFile,
    group: usize,
    ids: &AskedIds,
) -> Result<VecDeque<Range<usize>>, StoreError> {
    if let Some(few) = ids.few()
        && !file.may_have(group, few)?
    {
        return Ok(VecDeque::new());
    }
    Ok(ranges(file.rows_with(group, |id| ids.has(id))?))
}

/// The rows of a group whose ordinals are asked.
fn rows_of_ordinals(
    file: &EmbeddingsFile,
    group: usize,
    part: &Part,
    asked: &[u64],
) -> Result<VecDeque<Range<usize>>, DatasetError> {
    let GroupSummary {
        rows,
        ordinals: (first, last),
        ..
    } = part.groups[group];
    let start = asked.partition_point(|&ordinal| ordinal < first);
    if asked.get(start).is_none_or(|&ordinal| ordinal > last) {
        return Ok(VecDeque::new());
    }
    let keys = part.own(file.read(group, slice::from_ref(&(0..rows)), [0])?)?;
    let rows = ordinals(&keys).iter().enumerate();
    let rows = rows.filter(|(_, ordinal)| asked.binary_search(ordinal).is_ok());
    Ok(ranges(rows.map(|(row, _)| row)))
}

/// Joins consecutive rows.
fn ranges(rows: impl IntoIterator<Item = usize>) -> VecDeque<Range<usize>> {
    let mut ranges: VecDeque<Range<usize>> = VecDeque::new();
    for row in rows {
        match ranges.back_mut() {
            Some(range) if range.end == row => range.end += 1,
            _ => ranges.push_back(row..row + 1),
        }
    }
    ranges
}

fn out_of_order(part: &Part, row: &RowKey<'_>) -> DatasetError {
    let what = format!(
        "ordinal {} {}: expected every row once and in the order of the input, found it again or too late",
        row.ordinal,
        Quoted(row.id)
    );
    DatasetError::content(&part.path, what)
}
