//! The policy for records: which are proteins of the shards, and which residues of them the rows hold.

use std::ops::Range;

use plmkit_contract::{Reason, UnknownResidue};
use serde::Serialize;
use strum::{Display, EnumMessage, VariantArray};

use crate::residue::{InvalidPolicy, ResidueChanges, normalise};
use crate::translate::{Translated, Translator, to_sets};
use crate::windows::windows;

/// The policy for proteins with more than the maximum of residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumMessage, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum LongPolicy {
    /// Embed its first --max-residues residues; the row is marked as truncated
    Truncate,
    /// Embed overlapping windows of --max-residues, all in one shard; gpu-embed puts them together again
    Window,
    /// Keep it whole, in separate shards (shard-long-00000.parquet, …) that can be packed with a budget of their own
    Separate,
    /// Write it to rejects.csv
    Reject,
}

/// The policy for records. Lengths are in residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// The policy for characters that are not residues.
    pub invalid: InvalidPolicy,
    /// Shorter proteins are rejected.
    pub min_residues: u32,
    /// Longer proteins are treated as `long` says.
    pub max_residues: u32,
    /// The policy for long proteins.
    #[serde(rename = "long_policy")]
    pub long: LongPolicy,
    /// The overlap of two neighbouring windows, less than `max_residues`; `None` unless there are windows.
    pub overlap: Option<u32>,
}

/// What becomes of a record, whose sequence was normalised or translated.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its residues are rows of a shard.
    Accepted(ResidueChanges),
    /// It is a line of `rejects.csv`.
    Rejected(Reason),
    /// It is a contig with these peptides.
    Translated(Translated),
}

impl Policy {
    /// The usual maximum: ESM-2 was trained on sequences of up to so many residues.
    pub const MAX_RESIDUES: u32 = 1022;

    /// The usual overlap of windows.
    pub const OVERLAP: u32 = 256;

    /// Normalises a sequence in place, or translates it. Returns its length and what becomes of it, or its first unknown
    /// character if that is an error. Bytes after the length have no meaning. A record without an id is rejected.
    pub fn prepare(
        &self,
        translator: Option<&Translator>,
        has_id: bool,
        sequence: &mut [u8],
    ) -> (usize, Result<Outcome, UnknownResidue>) {
        let clean = if translator.is_some() {
            to_sets
        } else {
            normalise
        };
        let (length, changes) = clean(sequence, self.invalid == InvalidPolicy::X);
        let outcome = match changes {
            Err(unknown) if self.invalid == InvalidPolicy::Error => return (length, Err(unknown)),
            _ if !has_id => Outcome::Rejected(Reason::NoId),
            Err(_) => Outcome::Rejected(Reason::InvalidResidue),
            Ok(_) if length == 0 => Outcome::Rejected(Reason::Empty),
            Ok(changes) => match translator {
                Some(translator) => {
                    Outcome::Translated(translator.translate(&sequence[..length], changes))
                }
                None => self
                    .reject(length)
                    .map_or(Outcome::Accepted(changes), Outcome::Rejected),
            },
        };
        (length, Ok(outcome))
    }

    /// Returns why a protein of `length` residues is rejected, if it is.
    pub(crate) fn reject(&self, length: usize) -> Option<Reason> {
        if length < self.min_residues as usize {
            Some(Reason::TooShort)
        } else if self.long == LongPolicy::Reject && length > self.max_residues as usize {
            Some(Reason::TooLong)
        } else {
            None
        }
    }

    /// Returns how many of the residues of a protein its rows hold: the first ones.
    pub(crate) fn embedded(&self, length: u32) -> u32 {
        match self.long {
            LongPolicy::Truncate => length.min(self.max_residues),
            LongPolicy::Window | LongPolicy::Separate | LongPolicy::Reject => length,
        }
    }

    /// Whether a protein is kept whole although it is long.
    pub fn separates(&self, length: u32) -> bool {
        self.long == LongPolicy::Separate && length > self.max_residues
    }

    /// Iterates over the rows of a protein of `length` residues, as 0-based residue ranges.
    pub(crate) fn windows(&self, length: u32) -> impl ExactSizeIterator<Item = Range<u32>> + use<> {
        let (most, overlap) = match (self.long, self.overlap) {
            (LongPolicy::Window, overlap) => (self.max_residues, overlap.unwrap_or_default()),
            _ => (u32::MAX, 0),
        };
        windows(self.embedded(length), most, overlap)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    const POLICY: Policy = Policy {
        invalid: InvalidPolicy::Error,
        min_residues: 1,
        max_residues: 10,
        long: LongPolicy::Truncate,
        overlap: None,
    };

    /// Returns the normalised length of a sequence, and why it is rejected, if it is.
    fn prepared(policy: Policy, sequence: &str) -> (usize, Option<Reason>) {
        match policy.prepare(None, true, &mut sequence.as_bytes().to_vec()) {
            (length, Ok(Outcome::Accepted(_))) => (length, None),
            (length, Ok(Outcome::Rejected(reason))) => (length, Some(reason)),
            (_, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn exactly_the_maximum_is_not_long() {
        for &long in LongPolicy::VARIANTS {
            let policy = Policy { long, ..POLICY };
            assert_eq!(prepared(policy, "ACDEFGHIKL"), (10, None));
            assert!(!policy.separates(10));
            assert_eq!(policy.windows(10).len(), 1);
            assert_eq!(policy.windows(10).next(), Some(0..10));
        }
    }

    #[test]
    fn lengths_are_those_of_the_normalised_sequence() {
        let three = Policy {
            min_residues: 3,
            ..POLICY
        };
        let rejects_long = Policy {
            long: LongPolicy::Reject,
            ..POLICY
        };
        let rejects_invalid = Policy {
            invalid: InvalidPolicy::Reject,
            ..POLICY
        };
        for (policy, sequence, expected) in [
            (POLICY, " \t", (0, Some(Reason::Empty))),
            (POLICY, "*", (0, Some(Reason::Empty))),
            (POLICY, "ACDEFGHIKL*", (10, None)),
            (three, "M K*", (2, Some(Reason::TooShort))),
            (three, "MKV", (3, None)),
            (rejects_long, "ACDEFGHIKLMNPQR", (15, Some(Reason::TooLong))),
            (rejects_invalid, "M K-*", (3, Some(Reason::InvalidResidue))),
        ] {
            assert_eq!(prepared(policy, sequence), expected, "{sequence:?}");
        }
    }
}
