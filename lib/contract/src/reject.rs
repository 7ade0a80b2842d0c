//! Records that are not embedded, and why.

use serde::{Deserialize, Serialize};

/// Why a record was rejected.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The record has no residues.
    Empty,
    /// Fewer residues than asked for.
    TooShort,
    /// More residues than allowed.
    TooLong,
    /// A character that is no residue.
    InvalidResidue,
    /// The record's header has no id.
    NoId,
    /// It does not fit into the memory of the device, not even alone.
    OutOfMemory,
    /// A value of its embedding is infinite or not a number, or too large for the type in which it is stored.
    NotFinite,
    /// The processes that were to compute it, one after the other, did not survive it.
    WorkerLost,
}

impl Reason {
    /// Why a record gets into no shard, in the order in which reports list them.
    pub const SHARDING: [Self; 5] = [
        Self::Empty,
        Self::TooShort,
        Self::TooLong,
        Self::InvalidResidue,
        Self::NoId,
    ];
    /// Why a record of a shard gets no embedding.
    pub const EMBEDDING: [Self; 3] = [Self::OutOfMemory, Self::NotFinite, Self::WorkerLost];
}

/// One row of `rejects.csv`: a record that is in no shard, or a row of a shard that is not embedded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id; empty where it has none.
    pub id: String,
    /// Its residues.
    pub length: u64,
    /// Why it is here.
    pub reason: Reason,
    /// Offset of the row in the protein, in residues; `None` where it is the whole record, as in the file of
    /// `fasta-shard`, which has no such column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
}

/// One row of `renamed.csv`: a record that has another id in its shard than in the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id in the input.
    pub id: String,
    /// Its id in the shard.
    pub new_id: String,
}

/// A whole `rejects.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectsList {
    /// All its lines.
    pub lines: Vec<Reject>,
    /// Whether they are rows of shards, each with its start, as `gpu-embed` lists them, or whole records, without, as
    /// `fasta-shard` does.
    pub of_rows: bool,
    /// The [`ByteDigest`](crate::ByteDigest) of the file.
    pub digest: String,
}
