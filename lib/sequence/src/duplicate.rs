//! Ids that more than one record has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What to do with a record whose id an earlier one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// Stop the run.
    Error,
    /// Append `_2`, `_3`, … until the id is new.
    Suffix,
    /// Keep the id: only the ordinal then tells the records apart.
    Keep,
}

/// The id is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The ordinal of the record that had it first.
    pub first: u64,
}

/// The ids seen so far.
///
/// An id is remembered by a 128-bit fingerprint and a number, so memory is about 30 to 60 bytes for each distinct
/// id whatever its length, and nothing under [`DuplicatePolicy::Keep`].
pub struct Ids {
    policy: DuplicatePolicy,
    /// Fingerprint to the ordinal of its first record, or under `Suffix` to the last suffix given.
    seen: HashMap<[u8; 16], u64>,
}

impl Ids {
    /// No ids yet.
    pub fn new(policy: DuplicatePolicy) -> Self {
        Self {
            policy,
            seen: HashMap::new(),
        }
    }

    /// Takes up the id of record `ordinal`, changing it where the policy says so; returns whether it was changed.
    ///
    /// ```
    /// use plmkit_sequence::{DuplicatePolicy, Ids};
    /// let mut ids = Ids::new(DuplicatePolicy::Suffix);
    /// let mut id = "P1".to_owned();
    /// assert_eq!(ids.admit(0, &mut id), Ok(false));
    /// assert_eq!(ids.admit(1, &mut id), Ok(true));
    /// assert_eq!(id, "P1_2");
    /// ```
    pub fn admit(&mut self, ordinal: u64, id: &mut String) -> Result<bool, Duplicate> {
        match self.policy {
            DuplicatePolicy::Keep => Ok(false),
            DuplicatePolicy::Error => match self.seen.entry(fingerprint(id)) {
                Entry::Occupied(first) => Err(Duplicate {
                    first: *first.get(),
                }),
                Entry::Vacant(place) => {
                    place.insert(ordinal);
                    Ok(false)
                }
            },
            DuplicatePolicy::Suffix => Ok(self.suffix(id)),
        }
    }

    fn suffix(&mut self, id: &mut String) -> bool {
        let name = fingerprint(id);
        let Some(&last) = self.seen.get(&name) else {
            self.seen.insert(name, 1);
            return false;
        };
        let plain = id.len();
        let mut suffix = last;
        loop {
            suffix += 1;
            id.truncate(plain);
            id.push('_');
            id.push_str(&suffix.to_string());
            if let Entry::Vacant(place) = self.seen.entry(fingerprint(id)) {
                place.insert(1);
                break;
            }
        }
        self.seen.insert(name, suffix);
        true
    }
}

fn fingerprint(id: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..16]);
    short
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn admitted(policy: DuplicatePolicy, ids: &[&str]) -> Result<Vec<String>, Duplicate> {
        let mut seen = Ids::new(policy);
        (0..)
            .zip(ids)
            .map(|(ordinal, id)| {
                let mut id = (*id).to_owned();
                seen.admit(ordinal, &mut id).map(|_| id)
            })
            .collect()
    }

    #[test]
    fn error_names_the_first_record() {
        assert_eq!(
            admitted(DuplicatePolicy::Error, &["x", "a", "b", "a"]),
            Err(Duplicate { first: 1 })
        );
        assert!(admitted(DuplicatePolicy::Error, &["a", "A", "a_2"]).is_ok());
    }

    #[test]
    fn suffix_skips_names_that_are_taken() {
        let ids = admitted(DuplicatePolicy::Suffix, &["a", "a_2", "a", "a", "a_2", "b"]);
        assert_eq!(
            ids.expect("renamed"),
            ["a", "a_2", "a_3", "a_4", "a_2_2", "b"]
        );
    }

    #[test]
    fn keep_remembers_nothing() {
        assert_eq!(
            admitted(DuplicatePolicy::Keep, &["a", "a"]).expect("kept"),
            ["a", "a"]
        );
        let mut ids = Ids::new(DuplicatePolicy::Keep);
        ids.admit(0, &mut "a".to_owned()).expect("kept");
        assert!(ids.seen.is_empty());
    }

    proptest! {
        #[test]
        fn suffixed_ids_are_unique(ids in proptest::collection::vec("[ab](_[23])?", 0..60)) {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let renamed = admitted(DuplicatePolicy::Suffix, &ids).expect("renamed");
            let distinct: HashSet<&String> = renamed.iter().collect();
            prop_assert_eq!(distinct.len(), ids.len());
        }
    }
}
