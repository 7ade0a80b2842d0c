//! Duplicate ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use clap::ValueEnum;
use plmkit_contract::SequenceDigest;
use serde::Serialize;

/// The policy for a record with the id of an earlier record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// Stop the run and name both records
    Error,
    /// Append _2, _3, … to the id, the first that no record has, and list both ids in renamed.csv; files are read twice
    Suffix,
    /// Keep the id: only the ordinal tells the records apart
    Keep,
}

/// The id is already in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenId {
    /// An earlier record has it.
    ByRecord {
        /// That record's ordinal.
        first: u64,
    },
    /// An earlier record was renamed to it, because it was not [announced](Ids::announce).
    ByRenaming,
}

/// The ids of the records so far.
///
/// An id is stored as a 128-bit fingerprint and a number: 30 to 60 bytes for each distinct id. [`DuplicatePolicy::Keep`] stores
/// nothing.
pub struct Ids {
    policy: DuplicatePolicy,
    /// Maps a fingerprint to the ordinal of its first record. Under `Suffix`, maps it to the last suffix, [`ANNOUNCED`] or [`GIVEN`].
    taken: HashMap<SequenceDigest, u64>,
}

/// Marks an id of a later record.
const ANNOUNCED: u64 = 0;
/// Marks an id that a renamed record received.
const GIVEN: u64 = u64::MAX;

impl Ids {
    /// Starts without ids.
    pub fn new(policy: DuplicatePolicy) -> Self {
        Self {
            policy,
            taken: HashMap::new(),
        }
    }

    /// Announces the id of a later record, so that no other record is renamed to it.
    pub fn announce(&mut self, id: &str) {
        self.taken.insert(fingerprint(id), ANNOUNCED);
    }

    /// Adds the id of record `ordinal`, and renames it if the policy says so. Returns the old id of a renamed record.
    ///
    /// ```
    /// use plmkit_sequence::{DuplicatePolicy, Ids};
    /// let mut ids = Ids::new(DuplicatePolicy::Suffix);
    /// let mut id = "P1".to_owned();
    /// assert_eq!(ids.admit(0, &mut id), Ok(None));
    /// assert_eq!(ids.admit(1, &mut id), Ok(Some("P1".to_owned())));
    /// assert_eq!(id, "P1_2");
    /// ```
    pub fn admit(&mut self, ordinal: u64, id: &mut String) -> Result<Option<String>, TakenId> {
        match self.policy {
            DuplicatePolicy::Keep => Ok(None),
            DuplicatePolicy::Error => match self.taken.entry(fingerprint(id)) {
                Entry::Occupied(first) => Err(TakenId::ByRecord {
                    first: *first.get(),
                }),
                Entry::Vacant(place) => {
                    place.insert(ordinal);
                    Ok(None)
                }
            },
            DuplicatePolicy::Suffix => match self.taken.entry(fingerprint(id)) {
                Entry::Occupied(given) if *given.get() == GIVEN => Err(TakenId::ByRenaming),
                Entry::Occupied(last) if *last.get() != ANNOUNCED => Ok(Some(self.rename(id))),
                first => {
                    first.insert_entry(1);
                    Ok(None)
                }
            },
        }
    }

    /// Appends the next free suffix to the id, and returns the old id.
    fn rename(&mut self, id: &mut String) -> String {
        let old = id.clone();
        let name = fingerprint(&old);
        let mut suffix = self.taken.get(&name).copied().unwrap_or(1);
        loop {
            suffix += 1;
            *id = format!("{old}_{suffix}");
            if let Entry::Vacant(place) = self.taken.entry(fingerprint(id)) {
                place.insert(GIVEN);
                break;
            }
        }
        self.taken.insert(name, suffix);
        old
    }
}

fn fingerprint(id: &str) -> SequenceDigest {
    SequenceDigest::new(id.as_bytes())
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
    ) -> Result<Vec<String>, TakenId> {
        let mut seen = Ids::new(policy);
        for id in announced {
            seen.announce(id);
        }
        (0..)
            .zip(ids)
            .map(|(ordinal, id)| {
                let mut id = (*id).to_owned();
                seen.admit(ordinal, &mut id).map(|_| id)
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
        let mut ids = Ids::new(DuplicatePolicy::Keep);
        ids.admit(0, &mut "a".to_owned()).expect("kept");
        assert!(ids.taken.is_empty());
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
