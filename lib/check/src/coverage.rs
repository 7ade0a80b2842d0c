//! Whether embeddings hold what the shards hold.

use plmkit_contract::{Quoted, Reject, RowKey, SequenceDigest, plural};

use crate::check::Check;
use crate::violation::Violations;

/// What the embeddings should hold: the key columns of every shard row, or of every protein, where they hold whole
/// ones.
///
/// 48 bytes for each row and the bytes of its id: about 6 GB for a hundred million rows.
#[derive(Debug, Default)]
pub struct ExpectedRows {
    rows: Vec<Expected>,
    /// All ids, one after another.
    ids: String,
}

#[derive(Debug)]
struct Expected {
    ordinal: u64,
    id_offset: u64,
    id_bytes: u32,
    /// The offset of the row in its protein. Of one put together from windows, their number: it begins at 0.
    start_or_windows: u32,
    length: u32,
    digest: SequenceDigest,
    stitched: bool,
    truncated: bool,
    is_found: bool,
}

const _: () = assert!(
    size_of::<Expected>() == 48,
    "what a hundred million rows need is documented"
);

impl Expected {
    fn sort_key(&self) -> (u64, u32) {
        (self.ordinal, self.start_and_windows().0)
    }

    fn start_and_windows(&self) -> (u32, u32) {
        if self.stitched {
            (0, self.start_or_windows)
        } else {
            (self.start_or_windows, 1)
        }
    }

    fn row<'a>(&self, ids: &'a str) -> RowKey<'a> {
        let offset = self.id_offset as usize;
        let (start, n_windows) = self.start_and_windows();
        RowKey {
            ordinal: self.ordinal,
            id: &ids[offset..offset + self.id_bytes as usize],
            start,
            length: self.length,
            truncated: self.truncated,
            digest: self.digest,
            n_windows,
        }
    }
}

impl ExpectedRows {
    /// Adds one row. Order does not matter. One of several windows begins its protein: it is taken to start at 0.
    pub fn push(&mut self, row: &RowKey) {
        let stitched = row.n_windows > 1;
        self.rows.push(Expected {
            ordinal: row.ordinal,
            id_offset: self.ids.len() as u64,
            id_bytes: row.id.len() as u32,
            start_or_windows: if stitched { row.n_windows } else { row.start },
            length: row.length,
            digest: row.digest,
            stitched,
            truncated: row.truncated,
            is_found: false,
        });
        self.ids.push_str(row.id);
    }
}

/// The rows of the shards, ticked off as they turn up.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// By key, no key twice.
    rows: Vec<Expected>,
    ids: String,
    doubled_in_shards: Violations,
    extra: Violations,
    doubled: Violations,
    found: u64,
    compared: u64,
    /// By the field that differs: id, length, truncated, digest, `n_windows`.
    differing: [Violations; 5],
}

impl Coverage {
    pub(crate) fn new(shards: ExpectedRows) -> Self {
        let ExpectedRows { mut rows, ids } = shards;
        rows.sort_unstable_by_key(Expected::sort_key);
        let mut doubled_in_shards = Violations::default();
        rows.dedup_by(|later, earlier| {
            let same = later.sort_key() == earlier.sort_key();
            if same {
                doubled_in_shards.add_row(&earlier.row(&ids), "in the shards more than once");
            }
            same
        });
        Self {
            rows,
            ids,
            doubled_in_shards,
            extra: Violations::default(),
            doubled: Violations::default(),
            found: 0,
            compared: 0,
            differing: <[Violations; 5]>::default(),
        }
    }

    pub(crate) fn add(&mut self, row: &RowKey) {
        self.found += 1;
        let Ok(place) = self
            .rows
            .binary_search_by_key(&row.sort_key(), Expected::sort_key)
        else {
            self.extra.add_row(row, "not in the shards");
            return;
        };
        let expected = &mut self.rows[place];
        if std::mem::replace(&mut expected.is_found, true) {
            self.doubled.add_row(row, "more than once");
            return;
        }
        self.compared += 1;
        let expected = expected.row(&self.ids);
        let [id, length, truncated, digest, n_windows] = &mut self.differing;
        if row.id != expected.id {
            let problem = format_args!("expected id {}", Quoted(expected.id));
            id.add_row(row, problem);
        }
        if row.length != expected.length {
            let (expected, found) = (expected.length, row.length);
            let problem = format_args!("expected length {expected}, found {found}");
            length.add_row(row, problem);
        }
        if row.truncated != expected.truncated {
            let (expected, found) = (expected.truncated, row.truncated);
            let problem = format_args!("expected truncated = {expected}, found {found}");
            truncated.add_row(row, problem);
        }
        if row.digest != expected.digest {
            digest.add_row(row, "made from other residues: the digest differs");
        }
        if row.n_windows != expected.n_windows {
            let (expected, found) = (expected.n_windows, row.n_windows);
            let problem =
                format_args!("expected to be made from {expected} windows, found {found}");
            n_windows.add_row(row, problem);
        }
    }

    /// The ordinals of the shards, rising, one for each row.
    pub(crate) fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| row.ordinal)
    }

    /// The checks `coverage` and `records`. The rows `not_embedded` may be missing.
    pub(crate) fn finish(self, mut not_embedded: Vec<Reject>) -> [Check; 2] {
        let key = |line: &Reject| (line.ordinal, line.start.unwrap_or(0));
        not_embedded.sort_unstable_by_key(key);
        let expected = self.rows.len() as u64;
        let mut missing = Violations::default();
        let mut rejected = 0;
        for expected in self.rows.iter().filter(|row| !row.is_found) {
            let row = expected.row(&self.ids);
            match not_embedded.binary_search_by_key(&row.sort_key(), key) {
                Ok(place) if is_of(&not_embedded[place], &row) => rejected += 1,
                Ok(place) => {
                    let line = &not_embedded[place];
                    let (id, length) = (Quoted(&line.id), line.length);
                    let problem = format_args!("missing: it is listed as {id} of length {length}");
                    missing.add_row(&row, problem);
                }
                Err(_) => missing.add_row(&row, "missing"),
            }
        }
        let summary = format!(
            "{}, {expected} expected: {rejected} rejected, {} missing, {} extra, {} doubled",
            plural(self.found, "row"),
            missing.count,
            self.extra.count,
            self.doubled.count
        );
        let coverage = Check::judged(
            "coverage",
            summary,
            [
                ("expected", expected),
                ("found", self.found),
                ("rejected", rejected),
            ],
            [
                ("missing", missing),
                ("extra", self.extra),
                ("doubled", self.doubled),
                ("doubled_in_shards", self.doubled_in_shards),
            ],
        );
        let [id, length, truncated, digest, n_windows] = self.differing;
        let summary = format!(
            "{} compared: {} other ids, {} other lengths, {} other truncations, {} other residues, \
             {} other numbers of windows",
            plural(self.compared, "row"),
            id.count,
            length.count,
            truncated.count,
            digest.count,
            n_windows.count
        );
        let records = Check::judged(
            "records",
            summary,
            [("compared", self.compared)],
            [
                ("id", id),
                ("length", length),
                ("truncated", truncated),
                ("digest", digest),
                ("n_windows", n_windows),
            ],
        );
        [coverage, records]
    }
}

/// Whether a line is about this row.
fn is_of(line: &Reject, row: &RowKey) -> bool {
    line.id == row.id && line.length == u64::from(row.length)
}

#[cfg(test)]
mod tests;
