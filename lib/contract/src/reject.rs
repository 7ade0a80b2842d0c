//! Rejected and renamed records.

use serde::{Deserialize, Serialize};

use crate::ByteDigest;

/// The header of a list of rejected records. That of rejected rows begins with it.
pub const REJECTS_HEADER: &str = "ordinal,id,length,reason";

/// The header of a list of rejected rows.
pub const REJECTED_ROWS_HEADER: &str = "ordinal,id,length,reason,start";

/// The digest of a list of rejected rows without rows.
pub fn no_rejected_rows() -> String {
    ByteDigest::compute(format!("{REJECTED_ROWS_HEADER}\n").as_bytes()).to_string()
}

/// The header of a list of renamed records.
pub const RENAMED_HEADER: &str = "ordinal,id,new_id";

/// The reason for rejecting a record.
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
    /// Fewer residues than `--min-residues`.
    TooShort,
    /// More residues than `--max-residues`.
    TooLong,
    /// A character that is not a residue.
    InvalidResidue,
    /// The record's header has no id.
    NoId,
    /// The record is a contig without a peptide of `--min-residues` residues.
    NoOrf,
    /// An earlier record has its id and its residues.
    Duplicate,
    /// Even alone, it does not fit into the memory of the device, or its values not into a row of the output.
    OutOfMemory,
    /// A value of its embedding is infinite or NaN, or too large for the stored type.
    NotFinite,
    /// The processes that computed its batch crashed, twice.
    WorkerLost,
}

impl Reason {
    /// The reasons of `fasta-shard`, in the order of reports.
    pub const SHARDING: [Self; 7] = [
        Self::Empty,
        Self::TooShort,
        Self::TooLong,
        Self::InvalidResidue,
        Self::NoId,
        Self::NoOrf,
        Self::Duplicate,
    ];
    /// The reasons of `gpu-embed`.
    pub const EMBEDDING: [Self; 3] = [Self::OutOfMemory, Self::NotFinite, Self::WorkerLost];
}

/// One line of `rejects.csv`: a record that is in no shard, or a row of a shard without an embedding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id, or an empty string.
    pub id: String,
    /// Its number of residues; of bases, if it is a contig.
    pub length: u64,
    /// The reason.
    pub reason: Reason,
    /// Offset of the row in the protein, in residues. `None` for a whole record: the file of `fasta-shard` has no such column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
}

/// One line of `renamed.csv`: a record with a new id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id in the input.
    pub id: String,
    /// Its id in the shard.
    pub new_id: String,
}

/// The content of a `rejects.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectsList {
    /// All its lines.
    pub lines: Vec<Reject>,
    /// Whether the lines are rows of shards with a start (from `gpu-embed`), not whole records (from `fasta-shard`).
    pub of_rows: bool,
    /// The [`ByteDigest`](crate::ByteDigest) of the file.
    pub digest: String,
}
