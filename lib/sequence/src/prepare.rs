//! Applies the policy to a record.

use clap::ValueEnum;
use plmkit_contract::{Reason, Reject, UnknownResidue};
use serde::Serialize;

use crate::fasta::Record;
use crate::protein::Protein;
use crate::residue::{InvalidPolicy, normalise};

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

/// The result of [`Policy::prepare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Rows for a shard.
    Accepted(Protein),
    /// A line of `rejects.csv`.
    Rejected(Reject),
}

impl Policy {
    /// Applies the policy to the record at position `ordinal` of the whole input. A record without an id is rejected.
    ///
    /// Under [`InvalidPolicy::Error`], the first character that is not a residue is an error.
    ///
    /// # Panics
    /// Never: normalised residues are ASCII letters.
    pub fn prepare(&self, ordinal: u64, record: Record) -> Result<Prepared, UnknownResidue> {
        let mut residues = record.sequence;
        let normalised = normalise(&mut residues, self.invalid == InvalidPolicy::X);
        let length = u32::try_from(residues.len()).unwrap_or(u32::MAX);
        let long = length > self.max_residues;
        let reason = match normalised {
            Err(invalid) if self.invalid == InvalidPolicy::Error => return Err(invalid),
            _ if record.id.is_empty() => Some(Reason::NoId),
            Err(_) => Some(Reason::InvalidResidue),
            Ok(_) if length == 0 => Some(Reason::Empty),
            Ok(_) if length < self.min_residues => Some(Reason::TooShort),
            Ok(_) if long && self.long == LongPolicy::Reject => Some(Reason::TooLong),
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            return Ok(Prepared::Rejected(Reject {
                ordinal,
                id: record.id,
                length: u64::from(length),
                reason,
                start: None,
            }));
        }
        let mut window = (length, 0);
        match self.long {
            LongPolicy::Truncate => residues.truncate(self.max_residues as usize),
            LongPolicy::Window => window = (self.max_residues, self.overlap),
            LongPolicy::SplitOff | LongPolicy::Reject => {}
        }
        Ok(Prepared::Accepted(Protein {
            ordinal,
            id: record.id,
            description: record.description,
            residues: String::from_utf8(residues).expect("normalised residues are ASCII letters"),
            length,
            split_off: long && self.long == LongPolicy::SplitOff,
            changes: normalised.unwrap_or_default(),
            window,
        }))
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{RowKey, SequenceDigest, ShardRow};

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

    fn record(sequence: &str) -> Record {
        Record {
            number: 1,
            id: "P1".into(),
            description: Some("a protein".into()),
            description_recoded: false,
            sequence: sequence.into(),
        }
    }

    fn accepted(policy: Policy, sequence: &str) -> Protein {
        match policy.prepare(7, record(sequence)) {
            Ok(Prepared::Accepted(protein)) => protein,
            other => panic!("{other:?}"),
        }
    }

    fn rejected(policy: Policy, sequence: &str) -> (u64, Reason) {
        match policy.prepare(7, record(sequence)) {
            Ok(Prepared::Rejected(reject)) => {
                assert_eq!((reject.ordinal, reject.id.as_str()), (7, "P1"));
                (reject.length, reject.reason)
            }
            other => panic!("{other:?}"),
        }
    }

    const FIFTEEN: &str = "ACDEFGHIKLMNPQR";

    #[test]
    fn a_row_has_all_that_a_shard_holds() {
        let protein = accepted(POLICY, "mkv*");
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
            let protein = accepted(self::long(long), &FIFTEEN[..10]);
            assert_eq!(protein.rows().count(), 1);
            assert!(!protein.is_truncated() && !protein.split_off);
        }
    }

    #[test]
    fn windows_overlap() {
        let protein = accepted(long(LongPolicy::Window), FIFTEEN);
        let rows = protein.rows().map(|row| (row.key.start, row.sequence));
        assert!(rows.eq([(0, &FIFTEEN[..10]), (7, &FIFTEEN[7..])]));
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
            (long(LongPolicy::Reject), FIFTEEN, (15, Reason::TooLong)),
            (reject_invalid(), "M K-*", (3, Reason::InvalidResidue)),
        ] {
            assert_eq!(rejected(policy, sequence), expected, "{sequence:?}");
        }
        assert_eq!(accepted(policy, "MKV").length, 3);
        assert!(!accepted(POLICY, "ACDEFGHIKL*").is_truncated());
    }
}
