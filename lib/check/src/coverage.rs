//! Whether embeddings hold what their shards hold.

use plmkit_contract::{Quoted, Reject, RowKey, SequenceDigest};

use crate::check::Tallies;

/// The rows that embeddings should hold: the key columns of every row of some shards, or of every protein, where
/// embeddings hold whole ones.
///
/// They are ticked off as they turn up. 48 bytes for each row and the bytes of its id.
#[derive(Debug, Default)]
pub struct ExpectedRows {
    rows: Vec<Expected>,
    /// All ids, one after another.
    ids: String,
    /// Rows that turned up, and those of them that were compared.
    found: u64,
    compared: u64,
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
    /// The records of the rows.
    pub(crate) fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| row.ordinal)
    }

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

    /// Sorts the rows by key, no key twice: all were added.
    pub(crate) fn sort(&mut self, tallies: &mut Tallies) {
        self.rows.sort_unstable_by_key(Expected::sort_key);
        let (coverage, ids) = (tallies.of("coverage"), &self.ids);
        self.rows.dedup_by(|later, earlier| {
            let same = later.sort_key() == earlier.sort_key();
            if same {
                let row = earlier.row(ids);
                coverage.add("doubled_in_shards", &row, "in the shards more than once");
            }
            same
        });
    }

    /// Ticks a row off, and compares it.
    pub(crate) fn compare(&mut self, row: &RowKey, tallies: &mut Tallies) {
        self.found += 1;
        let key = row.sort_key();
        let Ok(place) = self.rows.binary_search_by_key(&key, Expected::sort_key) else {
            return tallies
                .of("coverage")
                .add("extra", row, "not in the shards");
        };
        let expected = &mut self.rows[place];
        if std::mem::replace(&mut expected.is_found, true) {
            return tallies.of("coverage").add("doubled", row, "more than once");
        }
        self.compared += 1;
        let expected = expected.row(&self.ids);
        if row.id != expected.id {
            let problem = format_args!("expected id {}", Quoted(expected.id));
            tallies.of("records").add("id", row, problem);
        }
        if row.length != expected.length {
            let (expected, found) = (expected.length, row.length);
            let problem = format_args!("expected length {expected}, found {found}");
            tallies.of("records").add("length", row, problem);
        }
        if row.truncated != expected.truncated {
            let (expected, found) = (expected.truncated, row.truncated);
            let problem = format_args!("expected truncated = {expected}, found {found}");
            tallies.of("records").add("truncated", row, problem);
        }
        if row.digest != expected.digest {
            let problem = "made from other residues: the digest differs";
            tallies.of("records").add("digest", row, problem);
        }
        if row.n_windows != expected.n_windows {
            let (expected, found) = (expected.n_windows, row.n_windows);
            let problem =
                format_args!("expected to be made from {expected} windows, found {found}");
            tallies.of("records").add("n_windows", row, problem);
        }
    }

    /// Adds the rows that did not turn up. Those `not_embedded`, sorted by [`reject_key`], may be missing.
    pub(crate) fn finish(&self, not_embedded: &[Reject], tallies: &mut Tallies) {
        tallies.of("records").count("compared", self.compared);
        let coverage = tallies.of("coverage");
        coverage.count("expected", self.rows.len() as u64);
        coverage.count("found", self.found);
        for expected in self.rows.iter().filter(|row| !row.is_found) {
            let row = expected.row(&self.ids);
            match not_embedded.binary_search_by_key(&row.sort_key(), reject_key) {
                Ok(place) if is_of(&not_embedded[place], &row) => coverage.count("rejected", 1),
                Ok(place) => {
                    let line = &not_embedded[place];
                    let (id, length) = (Quoted(&line.id), line.length);
                    let problem = format_args!("missing: it is listed as {id} of length {length}");
                    coverage.add("missing", &row, problem);
                }
                Err(_) => coverage.add("missing", &row, "missing"),
            }
        }
    }
}

/// Ordinal and start of a row that was not embedded.
pub(crate) fn reject_key(line: &Reject) -> (u64, u32) {
    (line.ordinal, line.start.unwrap_or(0))
}

/// Whether a line is about this row.
fn is_of(line: &Reject, row: &RowKey) -> bool {
    line.id == row.id && line.length == u64::from(row.length)
}

#[cfg(test)]
mod tests;
