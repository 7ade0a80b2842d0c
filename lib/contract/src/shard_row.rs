//! One row of a shard.

use crate::RowKey;

/// One row of a shard: a protein, or one window of it. The fields are the columns of
/// [`shard_schema`](crate::shard_schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow<'a> {
    /// What identifies the row.
    pub key: RowKey<'a>,
    /// The rest of the FASTA header.
    pub description: Option<&'a str>,
    /// The residues to embed, upper case.
    pub sequence: &'a str,
}
