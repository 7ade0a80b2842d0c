//! Whether embeddings hold what their shards hold.

use plmkit_contract::{Quoted, Reject, RowKey, SequenceDigest, plural};

use crate::aliases::AliasFindings;
use crate::check::Check;
use crate::violation::Violations;
use serde::{Deserialize, Serialize};

/// The rows that embeddings should hold: the key columns of every row of some shards, or of every protein, where
/// embeddings hold whole ones.
///
/// 48 bytes for each row and the bytes of its id.
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
}

/// The rows of some shards, ticked off as they turn up.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// By key, no key twice.
    rows: Vec<Expected>,
    ids: String,
    findings: CoverageFindings,
}

/// What was found of the expected rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CoverageFindings {
    expected: u64,
    found: u64,
    rejected: u64,
    compared: u64,
    missing: Violations,
    extra: Violations,
    doubled: Violations,
    pub(crate) doubled_in_shards: Violations,
    /// By the field that differs: id, length, truncated, digest, `n_windows`.
    differing: [Violations; 5],
}

impl Coverage {
    pub(crate) fn new(shards: ExpectedRows) -> Self {
        let ExpectedRows { mut rows, ids } = shards;
        rows.sort_unstable_by_key(Expected::sort_key);
        let mut findings = CoverageFindings::default();
        rows.dedup_by(|later, earlier| {
            let same = later.sort_key() == earlier.sort_key();
            if same {
                let doubled = &mut findings.doubled_in_shards;
                doubled.add_row(&earlier.row(&ids), "in the shards more than once");
            }
            same
        });
        findings.expected = rows.len() as u64;
        Self {
            rows,
            ids,
            findings,
        }
    }

    pub(crate) fn add(&mut self, row: &RowKey) {
        let findings = &mut self.findings;
        findings.found += 1;
        let Ok(place) = self
            .rows
            .binary_search_by_key(&row.sort_key(), Expected::sort_key)
        else {
            findings.extra.add_row(row, "not in the shards");
            return;
        };
        let expected = &mut self.rows[place];
        if std::mem::replace(&mut expected.is_found, true) {
            findings.doubled.add_row(row, "more than once");
            return;
        }
        findings.compared += 1;
        let expected = expected.row(&self.ids);
        let [id, length, truncated, digest, n_windows] = &mut findings.differing;
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

    /// What was found. The rows `not_embedded`, sorted by [`reject_key`], may be missing.
    pub(crate) fn finish(self, not_embedded: &[Reject]) -> CoverageFindings {
        let mut findings = self.findings;
        for expected in self.rows.iter().filter(|row| !row.is_found) {
            let row = expected.row(&self.ids);
            match not_embedded.binary_search_by_key(&row.sort_key(), reject_key) {
                Ok(place) if is_of(&not_embedded[place], &row) => findings.rejected += 1,
                Ok(place) => {
                    let line = &not_embedded[place];
                    let (id, length) = (Quoted(&line.id), line.length);
                    let problem = format_args!("missing: it is listed as {id} of length {length}");
                    findings.missing.add_row(&row, problem);
                }
                Err(_) => findings.missing.add_row(&row, "missing"),
            }
        }
        findings
    }
}

/// Ordinal and start of a row that was not embedded.
pub(crate) fn reject_key(line: &Reject) -> (u64, u32) {
    (line.ordinal, line.start.unwrap_or(0))
}

impl CoverageFindings {
    pub(crate) fn merge(&mut self, other: Self) {
        self.expected += other.expected;
        self.found += other.found;
        self.rejected += other.rejected;
        self.compared += other.compared;
        self.missing.merge(other.missing);
        self.extra.merge(other.extra);
        self.doubled.merge(other.doubled);
        self.doubled_in_shards.merge(other.doubled_in_shards);
        for (all, other) in self.differing.iter_mut().zip(other.differing) {
            all.merge(other);
        }
    }

    /// The checks `coverage` and `records`. The embeddings `without_list` matter where rows are missing; `aliases` are those of
    /// the shards.
    pub(crate) fn checks(self, without_list: Violations, aliases: AliasFindings) -> [Check; 2] {
        let without_list = match self.missing.count {
            0 => Violations::default(),
            _ => without_list,
        };
        let twice = match self.doubled_in_shards.count {
            0 => String::new(),
            count => format!(", {count} in the shards more than once"),
        };
        let summary = format!(
            "{}, {} expected: {} rejected, {} missing, {} extra, {} doubled{twice}",
            plural(self.found, "row"),
            self.expected,
            self.rejected,
            self.missing.count,
            self.extra.count,
            self.doubled.count
        );
        let coverage = Check::judged(
            "coverage",
            summary,
            [
                ("expected", self.expected),
                ("found", self.found),
                ("rejected", self.rejected),
            ],
            [
                ("missing", self.missing),
                ("extra", self.extra),
                ("doubled", self.doubled),
                ("doubled_in_shards", self.doubled_in_shards),
                ("without_list", without_list),
            ],
        );
        let [id, length, truncated, digest, n_windows] = self.differing;
        let of_aliases = if aliases.compared > 0 {
            let (compared, differing) = (aliases.compared, aliases.differing.count);
            format!("; {compared} aliases compared: {differing} other residues")
        } else {
            String::new()
        };
        let summary = format!(
            "{} compared: {} other ids, {} other lengths, {} other truncations, {} other residues, \
             {} other numbers of windows{of_aliases}",
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
            [
                ("compared", self.compared),
                ("aliases_compared", aliases.compared),
            ],
            [
                ("id", id),
                ("length", length),
                ("truncated", truncated),
                ("digest", digest),
                ("n_windows", n_windows),
                ("other_alias", aliases.differing),
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
