//! The files of a set, as their metadata describe them.

use plmkit_contract::{EmbeddingLayout, Provenance, RowDigest};

/// An embeddings file.
#[derive(Clone, Debug)]
pub struct EmbeddedFile {
    /// What reports call it.
    pub name: String,
    /// Its position among those given.
    pub position: usize,
    /// Where it comes from.
    pub provenance: Provenance,
    pub layout: EmbeddingLayout,
    /// The digest of its rows.
    pub rows: RowDigest,
}

/// A shard.
#[derive(Clone, Debug)]
pub struct ShardFile {
    /// What reports call it.
    pub name: String,
    /// Its position among those given.
    pub position: usize,
    /// Where it comes from.
    pub provenance: Provenance,
    /// The digest of its rows.
    pub rows: RowDigest,
    /// The digest of the batches that it becomes.
    pub batches: RowDigest,
}

#[cfg(test)]
impl EmbeddedFile {
    /// A file with these columns of a value each.
    pub(crate) fn of(name: &str, provenance: Provenance, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|name| name.parse().expect("a column"));
        Self {
            name: name.to_owned(),
            position: 0,
            provenance,
            layout: EmbeddingLayout {
                columns: columns.collect(),
                dim: 1,
                logits: plmkit_contract::VOCABULARY,
                dtype: plmkit_contract::StoreDtype::F32,
                stitched: false,
                labels: plmkit_contract::Labels::default(),
            },
            rows: RowDigest::default(),
        }
    }
}
