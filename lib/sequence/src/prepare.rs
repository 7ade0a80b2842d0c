//! Applies the policy to a record.

use clap::ValueEnum;
use plmkit_contract::{Reason, SequenceDigest, UnknownResidue};
use serde::Serialize;

use crate::aliases::Identity;
use crate::protein::Protein;
use crate::records::Record;
use crate::residue::{InvalidPolicy, ResidueChanges, normalise};
use crate::translate::{Translated, Translator, to_sets};

/// The policy for proteins with more than the maximum of residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LongPolicy {
    /// Embed its first --max-residues residues; the row is marked as truncated
    Truncate,
    /// Embed overlapping windows of --max-residues, all in one shard; gpu-embed puts them together again
    Window,
    /// Keep it whole, in separate shards (shard-long-00000.parquet, …) that can be packed with a budget of their own
    SplitOff,
    /// Write it to rejects.csv
    Reject,
}

/// The policy for records. Lengths are in residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The policy for characters that are not residues.
    pub invalid: InvalidPolicy,
    /// Shorter proteins are rejected.
    pub min_residues: u32,
    /// Longer proteins are treated as `long` says.
    pub max_residues: u32,
    /// The policy for long proteins.
    pub long: LongPolicy,
    /// The overlap of two neighbouring windows; less than `max_residues`.
    pub overlap: u32,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Its residues are rows of a shard.
    Accepted(Accepted),
    /// It is a line of `rejects.csv`.
    Rejected {
        /// Why.
        reason: Reason,
        /// Its residues.
        length: u32,
    },
}

/// What becomes of a record that may be a contig.
pub(crate) enum Outcome {
    /// It is a protein, or rejected.
    Whole(Prepared),
    /// It has these peptides.
    Translated(Translated),
}

/// An accepted record. Its residues are the first of its normalised sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Residues of the whole protein.
    pub length: u32,
    /// The residues that its rows hold.
    pub residues: u32,
    /// Whether it is kept whole although it is long.
    pub split_off: bool,
    /// What normalising changed.
    pub changes: ResidueChanges,
    /// Its digests, if they were computed.
    pub identity: Option<Identity>,
    /// The most residues of a row, and the overlap of two.
    window: (u32, u32),
}

impl Policy {
    /// Applies the policy to a sequence, which is normalised in place. A record without an id is rejected.
    pub fn prepare(&self, has_id: bool, sequence: &mut [u8]) -> Result<Prepared, UnknownResidue> {
        let (length, changes) = normalise(sequence, self.invalid == InvalidPolicy::X);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        match self.reason(has_id, length, changes.err())? {
            Some(reason) => Ok(Prepared::Rejected { reason, length }),
            None => Ok(self.accept(length, changes.unwrap_or_default())),
        }
    }

    /// Translates a contig, whose `sequence` has no meaning afterwards. A contig without an id is rejected.
    pub(crate) fn translate(
        &self,
        translator: &Translator,
        has_id: bool,
        sequence: &mut [u8],
    ) -> Result<Outcome, UnknownResidue> {
        let (bases, replaced) = to_sets(sequence, self.invalid == InvalidPolicy::X);
        let length = u32::try_from(bases).unwrap_or(u32::MAX);
        if let Some(reason) = self.reason(has_id, length, replaced.err())? {
            return Ok(Outcome::Whole(Prepared::Rejected { reason, length }));
        }
        let mut translated = translator.translate(&sequence[..bases]);
        translated.replaced = replaced.unwrap_or_default();
        Ok(Outcome::Translated(translated))
    }

    /// Returns why a record is rejected whatever its length, if it is. Its first character that is unknown may be the error.
    fn reason(
        &self,
        has_id: bool,
        length: u32,
        unknown: Option<UnknownResidue>,
    ) -> Result<Option<Reason>, UnknownResidue> {
        match unknown {
            Some(unknown) if self.invalid == InvalidPolicy::Error => Err(unknown),
            _ if !has_id => Ok(Some(Reason::NoId)),
            Some(_) => Ok(Some(Reason::InvalidResidue)),
            None if length == 0 => Ok(Some(Reason::Empty)),
            None => Ok(None),
        }
    }

    /// Applies the policy for lengths to a protein of `length` residues.
    pub(crate) fn accept(&self, length: u32, changes: ResidueChanges) -> Prepared {
        let long = length > self.max_residues;
        let reason = if length < self.min_residues {
            Some(Reason::TooShort)
        } else if long && self.long == LongPolicy::Reject {
            Some(Reason::TooLong)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Prepared::Rejected { reason, length };
        }
        let (residues, window) = match self.long {
            LongPolicy::Truncate => (length.min(self.max_residues), (length, 0)),
            LongPolicy::Window => (length, (self.max_residues, self.overlap)),
            LongPolicy::SplitOff | LongPolicy::Reject => (length, (length, 0)),
        };
        Prepared::Accepted(Accepted {
            length,
            residues,
            split_off: long && self.long == LongPolicy::SplitOff,
            changes,
            identity: None,
            window,
        })
    }
}

impl Accepted {
    /// Sets its digests, of which `whole` is that of all residues. The sequence was prepared.
    pub(crate) fn identified(self, whole: SequenceDigest, sequence: &[u8]) -> Self {
        let embedded = match self.residues {
            residues if residues < self.length => {
                SequenceDigest::new(&sequence[..residues as usize])
            }
            _ => whole,
        };
        Self {
            identity: Some(Identity { whole, embedded }),
            ..self
        }
    }

    /// Returns the protein of the record `ordinal` of the whole input, whose sequence was prepared.
    pub fn protein<'a>(&self, ordinal: u64, record: Record<'a>) -> Protein<'a> {
        Protein {
            ordinal,
            id: record.id,
            description: record.description,
            residues: &record.sequence[..self.residues as usize],
            length: self.length,
            split_off: self.split_off,
            changes: self.changes,
            identity: self.identity,
            window: self.window,
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{RowKey, ShardRow};

    use super::*;

    const POLICY: Policy = Policy {
        invalid: InvalidPolicy::Error,
        min_residues: 1,
        max_residues: 10,
        long: LongPolicy::Truncate,
        overlap: 3,
    };

    fn long(long: LongPolicy) -> Policy {
        Policy { long, ..POLICY }
    }

    fn reject_invalid() -> Policy {
        Policy {
            invalid: InvalidPolicy::Reject,
            ..POLICY
        }
    }

    fn accepted(policy: Policy, sequence: &mut [u8]) -> Protein<'_> {
        match policy.prepare(true, sequence) {
            Ok(Prepared::Accepted(accepted)) => accepted.protein(
                7,
                Record {
                    id: "P1",
                    description: Some("a protein"),
                    sequence,
                },
            ),
            other => panic!("{other:?}"),
        }
    }

    fn rejected(policy: Policy, sequence: &str) -> (u32, Reason) {
        match policy.prepare(true, &mut sequence.as_bytes().to_vec()) {
            Ok(Prepared::Rejected { reason, length }) => (length, reason),
            other => panic!("{other:?}"),
        }
    }

    const FIFTEEN: [u8; 15] = *b"ACDEFGHIKLMNPQR";

    #[test]
    fn a_row_has_all_that_a_shard_holds() {
        let mut sequence = *b"mkv*";
        let protein = accepted(POLICY, &mut sequence);
        let rows: Vec<_> = protein.rows().collect();
        let key = RowKey {
            ordinal: 7,
            id: "P1",
            start: 0,
            length: 3,
            truncated: false,
            digest: SequenceDigest::new(b"MKV"),
            n_windows: 1,
        };
        let expected = ShardRow {
            key,
            description: Some("a protein"),
            sequence: "MKV",
        };
        assert_eq!(rows, [expected]);
        assert_eq!(protein.tokens(), 5);
    }

    #[test]
    fn exactly_the_maximum_is_not_long() {
        for &long in LongPolicy::value_variants() {
            let mut sequence = FIFTEEN;
            let protein = accepted(self::long(long), &mut sequence[..10]);
            assert_eq!(protein.rows().count(), 1);
            assert!(!protein.is_truncated() && !protein.split_off);
        }
    }

    #[test]
    fn windows_overlap() {
        let mut sequence = FIFTEEN;
        let protein = accepted(long(LongPolicy::Window), &mut sequence);
        let rows = protein.rows().map(|row| (row.key.start, row.sequence));
        assert!(rows.eq([(0, "ACDEFGHIKL"), (7, "IKLMNPQR")]));
        assert!(protein.rows().all(|row| row.key.length == 15));
        assert_eq!((protein.row_residues(), protein.tokens()), (18, 22));
    }

    #[test]
    fn lengths_are_those_of_the_normalised_sequence() {
        let policy = Policy {
            min_residues: 3,
            ..POLICY
        };
        for (policy, sequence, expected) in [
            (POLICY, " \t", (0, Reason::Empty)),
            (POLICY, "*", (0, Reason::Empty)),
            (policy, "M K*", (2, Reason::TooShort)),
            (
                long(LongPolicy::Reject),
                "ACDEFGHIKLMNPQR",
                (15, Reason::TooLong),
            ),
            (reject_invalid(), "M K-*", (3, Reason::InvalidResidue)),
        ] {
            assert_eq!(rejected(policy, sequence), expected, "{sequence:?}");
        }
        assert_eq!(accepted(policy, &mut { *b"MKV" }).length, 3);
        assert!(!accepted(POLICY, &mut { *b"ACDEFGHIKL*" }).is_truncated());
    }
}
