//! One row of a shard.

use crate::SequenceDigest;

/// One row of a shard: a protein, or one window of it. The fields are the columns of
/// [`shard_schema`](crate::shard_schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow<'a> {
    /// 0-based position of the record in the whole input, rejected records included.
    pub ordinal: u64,
    /// First word of the FASTA header, or what the duplicate-id policy made of it.
    pub id: &'a str,
    /// The rest of the header.
    pub description: Option<&'a str>,
    /// The residues to embed, upper case.
    pub sequence: &'a str,
    /// Residues of the whole protein.
    pub length: u32,
    /// 0-based offset of `sequence` in the protein, in residues.
    pub start: u32,
    /// Whether residues of the protein are in no row at all.
    pub truncated: bool,
    /// Digest of `sequence`.
    pub digest: SequenceDigest,
}
