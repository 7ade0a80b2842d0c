//! Proteins on their way into a shard.

use plmkit_contract::{RowKey, SequenceDigest, ShardRow};

use crate::policy::Policy;
use crate::records::Record;

/// An accepted record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protein<'a> {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id.
    pub id: &'a str,
    /// The rest of its header, if any.
    pub description: Option<&'a str>,
    /// The residues to embed, upper case: the first of the protein.
    pub residues: &'a [u8],
    /// Number of residues in the whole protein.
    pub length: u32,
}

impl<'a> Protein<'a> {
    /// Takes an accepted record, whose sequence is normalised.
    pub fn new(policy: &Policy, ordinal: u64, record: Record<'a>) -> Self {
        let length = u32::try_from(record.sequence.len()).unwrap_or(u32::MAX);
        Self {
            ordinal,
            id: record.id,
            description: record.description,
            residues: &record.sequence[..policy.embedded(length) as usize],
            length,
        }
    }

    /// Whether some of its residues are in no row.
    pub fn is_truncated(self) -> bool {
        (self.residues.len() as u32) < self.length
    }
}

/// Returns the rows of proteins.
///
/// # Panics
/// If residues are not ASCII.
pub fn rows<'a>(
    policy: &Policy,
    proteins: impl IntoIterator<Item = Protein<'a>>,
) -> Vec<ShardRow<'a>> {
    let rows = proteins.into_iter().flat_map(|protein| {
        policy.windows(protein.length).map(move |window| {
            let residues = &protein.residues[window.start as usize..window.end as usize];
            let key = RowKey {
                ordinal: protein.ordinal,
                id: protein.id,
                start: window.start,
                length: protein.length,
                truncated: protein.is_truncated(),
                digest: SequenceDigest::default(),
                n_windows: 1,
            };
            ShardRow {
                key,
                description: protein.description,
                sequence: str::from_utf8(residues).expect("residues are ASCII letters"),
            }
        })
    });
    let mut rows: Vec<ShardRow<'_>> = rows.collect();
    let sequences: Vec<&[u8]> = rows.iter().map(|row| row.sequence.as_bytes()).collect();
    for (row, digest) in rows.iter_mut().zip(SequenceDigest::of_all(&sequences)) {
        row.key.digest = digest;
    }
    rows
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
            digest: SequenceDigest::new(sequence.as_bytes()),
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
            let protein = Protein::new(&policy, 7, record);
            assert_eq!(rows(&policy, [protein]), expected, "{long}");
        }
    }
}
