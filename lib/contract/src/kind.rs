//! The kinds of data file.

/// What a data file holds, named by its `plmkit.kind` metadata entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Records of a FASTA input, one row a sequence or window (Parquet).
    Shard,
    /// Packed batches of token ids, a record batch for each batch (Arrow IPC file).
    Batches,
    /// Embedding vectors, one row a sequence or window (Parquet).
    Embeddings,
}
