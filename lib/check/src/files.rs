//! The files of a set, as their metadata describe them.

use plmkit_contract::{EmbeddingLayout, Provenance, RowDigest};
use serde::{Deserialize, Serialize};

/// An embeddings file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmbeddedFile {
    /// What reports call it.
    pub name: String,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Its columns.
    pub layout: EmbeddingLayout,
}

/// A shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShardFile {
    pub(crate) name: String,
    pub(crate) provenance: Provenance,
    /// The digest of its rows.
    pub(crate) rows: RowDigest,
    /// The digest of the batches that it becomes.
    pub(crate) batches: RowDigest,
}
