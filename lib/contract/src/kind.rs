//! The kinds of data file.

use std::fmt;

/// What a data file holds, named by its `plmkit.kind` metadata entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records of a FASTA input, one row a sequence or window (Parquet).
    Shard,
    /// Packed batches of token ids, one record batch a pack (Arrow IPC file).
    Batches,
    /// Embedding vectors, one row a sequence or window (Parquet).
    Embeddings,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shard => "shard",
            Self::Batches => "batches",
            Self::Embeddings => "embeddings",
        })
    }
}
