//! Duplicate ids.

use serde::Serialize;
use strum::{Display, EnumMessage, VariantArray};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use crate::id_table::IdTable;

/// The policy for a record with the id of an earlier record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumMessage, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// Stop the run and name both records
    Error,
    /// List it in rejects.csv if it has the residues of that record as well; stop the run if not
    DropIdentical,
    /// Append _2, _3, … to the id, the first that no record has, and list both ids in renamed.csv; files are read twice
    Suffix,
    /// Keep the id: only the ordinal tells the records apart
    Keep,
}

/// The ids of the records so far, in at most 24 bytes for each distinct id, twice that under [`DuplicatePolicy::DropIdentical`].
/// [`DuplicatePolicy::Keep`] stores nothing.
pub(crate) struct DuplicateFilter {
    policy: DuplicatePolicy,
    /// The ordinal of the first record of an id. Under `Suffix`, the last suffix, [`ANNOUNCED`] or [`GIVEN`].
    taken: IdTable,
    /// Under `DropIdentical`: ids together with sequences.
    records: IdTable,
}

/// Marks an id of a later record.
const ANNOUNCED: u64 = 0;
/// Marks an id that a renamed record received.
const GIVEN: u64 = IdTable::MAX_VALUE;

impl DuplicateFilter {
    /// Starts without ids.
    pub(crate) fn new(policy: DuplicatePolicy) -> Self {
        Self {
            policy,
            taken: IdTable::default(),
            records: IdTable::default(),
        }
    }

    /// Announces the id of a later record, so that no other record is renamed to it.
    pub(crate) fn announce(&mut self, id: &str) {
        self.taken.insert(fingerprint_of(id), ANNOUNCED);
    }

    /// Whether the policy drops a record, whose id has this fingerprint: an earlier one has its id and its sequence.
    pub(crate) fn drops(&mut self, fingerprint: u128, sequence: &[u8]) -> bool {
        self.policy == DuplicatePolicy::DropIdentical && {
            let both = xxh3_128_with_seed(sequence, fingerprint as u64) ^ fingerprint;
            self.records.add(both, 0).is_some()
        }
    }

    /// Adds the id of record `ordinal`, which has this fingerprint. Returns its new id if the policy renames it. The error is the
    /// first record that has the id; `None` if an earlier record was renamed to it, because it was not
    /// [announced](Self::announce).
    pub(crate) fn admit(
        &mut self,
        ordinal: u64,
        id: &str,
        fingerprint: u128,
    ) -> Result<Option<String>, Option<u64>> {
        match self.policy {
            DuplicatePolicy::Keep => Ok(None),
            DuplicatePolicy::Error | DuplicatePolicy::DropIdentical => {
                match self.taken.add(fingerprint, ordinal) {
                    Some(first) => Err(Some(first)),
                    None => Ok(None),
                }
            }
            DuplicatePolicy::Suffix => match self.taken.add(fingerprint, 1) {
                None => Ok(None),
                Some(ANNOUNCED) => {
                    self.taken.insert(fingerprint, 1);
                    Ok(None)
                }
                Some(GIVEN) => Err(None),
                Some(last) => Ok(Some(self.rename(id, fingerprint, last))),
            },
        }
    }

    /// Loads the places of these fingerprints into the cache. One after another, they would wait for memory.
    pub(crate) fn prefetch(&self, fingerprints: impl Iterator<Item = u128>) {
        if self.policy != DuplicatePolicy::Keep {
            self.taken.prefetch(fingerprints);
        }
    }

    /// Returns a new id for a record whose id has this fingerprint and was last renamed with the suffix `last`.
    fn rename(&mut self, id: &str, fingerprint: u128, last: u64) -> String {
        let mut suffix = last;
        loop {
            suffix += 1;
            let new = format!("{id}_{suffix}");
            let given = fingerprint_of(&new);
            if self.taken.get(given).is_none() {
                self.taken.insert(given, GIVEN);
                self.taken.insert(fingerprint, suffix);
                return new;
            }
        }
    }
}

/// Returns the fingerprint of an id. Chance collisions do not occur among a billion ids.
pub(crate) fn fingerprint_of(id: &str) -> u128 {
    xxh3_128(id.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Admits `ids` after announcing `announced`, and returns the resulting ids.
    fn admitted(
        policy: DuplicatePolicy,
        announced: &[&str],
        ids: &[&str],
    ) -> Result<Vec<String>, Option<u64>> {
        let mut seen = DuplicateFilter::new(policy);
        for id in announced {
            seen.announce(id);
        }
        (0..)
            .zip(ids)
            .map(|(ordinal, id)| {
                let new = seen.admit(ordinal, id, fingerprint_of(id))?;
                Ok(new.unwrap_or_else(|| (*id).to_owned()))
            })
            .collect()
    }

    #[test]
    fn suffix_skips_names_that_are_taken() {
        let ids = ["a", "a_2", "a", "a", "a_2", "b"];
        let renamed = admitted(DuplicatePolicy::Suffix, &[], &ids);
        assert_eq!(
            renamed.expect("renamed"),
            ["a", "a_2", "a_3", "a_4", "a_2_2", "b"]
        );
    }

    #[test]
    fn keep_remembers_nothing() {
        assert_eq!(
            admitted(DuplicatePolicy::Keep, &[], &["a", "a"]).expect("kept"),
            ["a", "a"]
        );
        let mut ids = DuplicateFilter::new(DuplicatePolicy::Keep);
        ids.admit(0, "a", fingerprint_of("a")).expect("kept");
        assert_eq!(ids.taken.len(), 0);
    }

    proptest! {
        #[test]
        fn suffixed_ids_are_unique(ids in proptest::collection::vec("[ab](_[23])?", 0..60)) {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let renamed = admitted(DuplicatePolicy::Suffix, &ids, &ids).expect("renamed");
            let distinct: HashSet<&String> = renamed.iter().collect();
            prop_assert_eq!(distinct.len(), ids.len());
            // The first record of an id keeps it.
            for (first, id) in ids.iter().enumerate().filter(|(at, id)| !ids[..*at].contains(id)) {
                prop_assert_eq!(&renamed[first], id);
            }
        }
    }
}
