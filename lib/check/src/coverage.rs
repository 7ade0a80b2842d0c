//! Whether embeddings hold what their shards hold.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use plmkit_contract::{Reject, RowKey, SequenceDigest};
use plmkit_kit::Quoted;

use crate::check::Tallies;
use crate::checks::{coverage, records};

/// The rows that embeddings should hold, by ordinal and start: every row of some shards, or every protein, where embeddings hold whole
/// ones. They are ticked off as they turn up.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    rows: BTreeMap<(u64, u32), Expected>,
    /// The rows that turned up, and those of them that were compared.
    found: u64,
    compared: u64,
}

#[derive(Debug)]
struct Expected {
    id: Box<str>,
    length: u32,
    n_windows: u32,
    digest: SequenceDigest,
    truncated: bool,
    is_found: bool,
}

impl Coverage {
    /// Expects a row.
    pub(crate) fn push(&mut self, row: &RowKey, tallies: &mut Tallies) {
        match self.rows.entry(row.sort_key()) {
            Entry::Vacant(free) => {
                free.insert(Expected {
                    id: row.id.into(),
                    length: row.length,
                    n_windows: row.n_windows,
                    digest: row.digest,
                    truncated: row.truncated,
                    is_found: false,
                });
            }
            Entry::Occupied(_) => {
                tallies.add(
                    coverage::doubled_in_shards,
                    row,
                    "in the shards more than once",
                );
            }
        }
    }

    /// Ticks a row off, and compares it.
    pub(crate) fn compare(&mut self, row: &RowKey, tallies: &mut Tallies) {
        self.found += 1;
        let Some(expected) = self.rows.get_mut(&row.sort_key()) else {
            return tallies.add(coverage::extra, row, "not in the shards");
        };
        if std::mem::replace(&mut expected.is_found, true) {
            return tallies.add(coverage::doubled, row, "more than once");
        }
        self.compared += 1;
        if row.id != &*expected.id {
            let problem = format_args!("expected id {}", Quoted(&expected.id));
            tallies.add(records::id, row, problem);
        }
        if row.length != expected.length {
            let (expected, found) = (expected.length, row.length);
            let problem = format_args!("expected length {expected}, found {found}");
            tallies.add(records::length, row, problem);
        }
        if row.truncated != expected.truncated {
            let (expected, found) = (expected.truncated, row.truncated);
            let problem = format_args!("expected truncated = {expected}, found {found}");
            tallies.add(records::truncated, row, problem);
        }
        if row.digest != expected.digest {
            let problem = "made from other residues: the digest differs";
            tallies.add(records::digest, row, problem);
        }
        if row.n_windows != expected.n_windows {
            let (expected, found) = (expected.n_windows, row.n_windows);
            let problem =
                format_args!("expected to be made from {expected} windows, found {found}");
            tallies.add(records::n_windows, row, problem);
        }
    }

    /// Adds the rows that did not turn up. Those `not_embedded`, sorted by [`reject_key`], may be missing.
    pub(crate) fn finish(&self, not_embedded: &[Reject], tallies: &mut Tallies) {
        tallies.count(coverage::expected, self.rows.len() as u64);
        tallies.count(coverage::found, self.found);
        tallies.count(records::compared, self.compared);
        for (key, row) in self.rows.iter().filter(|(_, row)| !row.is_found) {
            let place = (key.0, key.1, &*row.id);
            match not_embedded.binary_search_by_key(key, reject_key) {
                Ok(found) => {
                    let Reject { id, length, .. } = &not_embedded[found];
                    if **id == *row.id && *length == u64::from(row.length) {
                        tallies.count(coverage::rejected, 1);
                        continue;
                    }
                    let id = Quoted(id);
                    let problem = format_args!("missing: it is listed as {id} of length {length}");
                    tallies.add(coverage::missing, place, problem);
                }
                Err(_) => tallies.add(coverage::missing, place, "missing"),
            }
        }
    }
}

/// Ordinal and start of a row that was not embedded.
pub(crate) fn reject_key(line: &Reject) -> (u64, u32) {
    (line.ordinal, line.start.unwrap_or(0))
}

#[cfg(test)]
mod tests;
