//! The files of a set: as their metadata describe them, and as lists name them.

use std::collections::{BTreeMap, HashSet};

use plmkit_contract::{EmbeddingLayout, Manifest, Provenance, Reason, RejectsList, RowDigest};
use serde::{Deserialize, Serialize};

use crate::DatasetParts;

/// An embeddings file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmbeddedFile {
    /// What reports call it.
    pub name: String,
    /// Its position among those given.
    pub position: usize,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Its columns.
    pub layout: EmbeddingLayout,
    /// The digest of its rows.
    pub rows: RowDigest,
    /// The first ordinal of its shard, or of its rows; none where it is not known.
    pub begins: Option<u64>,
}

/// A shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// What is known of a whole set beside its shards and embeddings.
#[derive(Debug, Default)]
pub struct WholeSet<'a> {
    /// The manifest of the shards.
    pub manifest: Option<&'a Manifest>,
    /// The lists of what is not in the embeddings.
    pub rejects: RejectsLists,
    /// The parts of the dataset, if the embeddings are one.
    pub parts: Option<DatasetParts>,
}

/// The lists of what is not in the embeddings.
#[derive(Debug, Default)]
pub struct RejectsLists {
    /// Whether any list was given.
    pub(crate) given: bool,
    /// Ids of records and rows.
    pub(crate) ids: HashSet<String>,
    /// Ordinals of records that are in no shard.
    pub(crate) ordinals: Vec<u64>,
    /// Rejected records and rows, by reason.
    pub(crate) by_reason: BTreeMap<Reason, u64>,
    /// Name and digest of each list of records, and of each list of rows.
    pub(crate) of_records: Vec<(String, String)>,
    pub(crate) of_rows: Vec<(String, String)>,
}

impl RejectsLists {
    /// Adds a list.
    pub fn add(&mut self, name: &str, list: &RejectsList) {
        self.given = true;
        let file = (name.to_owned(), list.digest.clone());
        for reject in &list.lines {
            *self.by_reason.entry(reject.reason).or_default() += 1;
            self.ids.insert(reject.id.clone());
        }
        if list.of_rows {
            self.of_rows.push(file);
            return;
        }
        self.of_records.push(file);
        let ordinals = list.lines.iter().map(|reject| reject.ordinal);
        self.ordinals.extend(ordinals);
    }
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
            begins: None,
        }
    }
}
