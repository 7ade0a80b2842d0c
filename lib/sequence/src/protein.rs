//! Proteins on their way into a shard.

use plmkit_contract::{RowKey, SequenceDigest, ShardRow};

use crate::policy::Policy;
use crate::records::Record;

impl Policy {
    /// Makes one row of an accepted record, whose sequence is normalised: all its residues that are embedded. The row has no digest.
    ///
    /// # Panics
    /// If residues are not ASCII.
    pub fn protein<'a>(&self, ordinal: u64, record: Record<'a>) -> ShardRow<'a> {
        let length = u32::try_from(record.sequence.len()).unwrap_or(u32::MAX);
        let embedded = self.embedded(length);
        let residues = &record.sequence[..embedded as usize];
        ShardRow {
            key: RowKey {
                ordinal,
                id: record.id,
                start: 0,
                length,
                truncated: embedded < length,
                digest: SequenceDigest::default(),
                n_windows: 1,
            },
            description: record.description,
            sequence: str::from_utf8(residues).expect("residues are ASCII letters"),
        }
    }

    /// Iterates over the rows of a [protein](Self::protein): itself, or its windows.
    pub fn rows<'a>(&self, protein: ShardRow<'a>) -> impl Iterator<Item = ShardRow<'a>> {
        let windows = self.windows(protein.key.length);
        windows.map(move |window| ShardRow {
            key: RowKey {
                start: window.start,
                ..protein.key
            },
            sequence: &protein.sequence[window.start as usize..window.end as usize],
            ..protein
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LongPolicy;
    use crate::residue::InvalidPolicy;

    fn row(start: u32, sequence: &'static str, truncated: bool) -> ShardRow<'static> {
        let key = RowKey {
            ordinal: 7,
            id: "P1",
            start,
            length: 15,
            truncated,
            digest: SequenceDigest::default(),
            n_windows: 1,
        };
        ShardRow {
            key,
            description: Some("a protein"),
            sequence,
        }
    }

    #[test]
    fn a_long_protein_is_truncated_or_in_windows_that_overlap() {
        let record = Record {
            id: "P1",
            description: Some("a protein"),
            sequence: b"ACDEFGHIKLMNPQR",
        };
        for (long, expected) in [
            (LongPolicy::Truncate, vec![row(0, "ACDEFGHIKL", true)]),
            (
                LongPolicy::Window,
                vec![row(0, "ACDEFGHIKL", false), row(7, "IKLMNPQR", false)],
            ),
            (LongPolicy::Separate, vec![row(0, "ACDEFGHIKLMNPQR", false)]),
        ] {
            let policy = Policy {
                invalid: InvalidPolicy::Error,
                min_residues: 1,
                max_residues: 10,
                long,
                overlap: Some(3),
            };
            let rows = policy.rows(policy.protein(7, record));
            assert_eq!(rows.collect::<Vec<_>>(), expected, "{long}");
        }
    }
}
