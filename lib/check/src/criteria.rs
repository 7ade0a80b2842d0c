//! What embeddings are compared with.

use std::collections::{BTreeMap, HashMap};

use plmkit_contract::{Column, Manifest, Provenance, Reason, RecordCounts, Reject, RejectsList};

use crate::aliases::AliasLists;
use crate::coverage::reject_key;
use crate::reference::Reference;

/// What embeddings are compared with, whatever file they are in.
#[derive(Debug, Default)]
pub struct Criteria {
    /// The largest share of the records that may be rejected; 5 % by default.
    pub max_rejected: Option<f64>,
    /// Whether a set without rows passes.
    pub allow_empty: bool,
    /// The manifest of the shards, with its name.
    pub manifest: Option<(String, Manifest)>,
    /// Without a manifest: the records, and the rejected ones by reason, as an earlier verdict on the same set counted them.
    pub earlier: Option<RecordCounts>,
    /// Vectors to compare with, and the smallest cosine with them that passes.
    pub reference: Option<(Reference, f64)>,
    /// Name and content of each list of rejects.
    pub rejects: Vec<(String, RejectsList)>,
    /// The rows of all shards that could not be embedded, sorted by ordinal and start.
    pub(crate) not_embedded: Vec<Reject>,
    /// Records that are in no shard, because another row holds their vectors.
    pub aliases: AliasLists,
    /// A sample of the rows, computed again.
    pub recomputed: Option<Recomputed>,
    /// Why there is none, if not for want of a model.
    pub not_recomputed: Option<&'static str>,
}

impl Criteria {
    /// The records, and the rejected ones by reason, as the manifest or an earlier verdict counted them.
    pub(crate) fn counted(&self) -> Option<(u64, &BTreeMap<Reason, u64>)> {
        let manifest = self.manifest.as_ref();
        let earlier = self.earlier.as_ref();
        let counted = manifest.map(|(_, manifest)| (manifest.records, &manifest.rejected));
        counted.or(earlier.map(|(records, rejected)| (*records, rejected)))
    }

    /// Returns the lists of rejected rows, or those of rejected records, with their names.
    pub(crate) fn lists(&self, of_rows: bool) -> impl Iterator<Item = (&str, &RejectsList)> {
        let lists = self
            .rejects
            .iter()
            .map(|(name, list)| (name.as_str(), list));
        lists.filter(move |(_, list)| list.of_rows == of_rows)
    }

    /// Adds a list of rejects, which reports call `name`. One that is there already is not added again.
    pub fn add_rejects(&mut self, name: String, list: RejectsList) {
        if self.rejects.iter().any(|(_, known)| *known == list) {
            return;
        }
        if list.of_rows {
            self.not_embedded.extend_from_slice(&list.lines);
            self.not_embedded.sort_by_key(reject_key);
        }
        self.rejects.push((name, list));
    }
}

/// A sample of the rows, computed again.
#[derive(Debug)]
pub struct Recomputed {
    /// What they were computed by.
    pub made_by: Provenance,
    pub columns: Vec<Column>,
    /// By ordinal and start: a vector for each column.
    pub rows: HashMap<(u64, u32), Vec<Vec<f32>>>,
}

impl Recomputed {
    /// Returns the place of a column among the vectors of a row.
    pub(crate) fn place(&self, column: Column) -> Option<usize> {
        self.columns.iter().position(|&known| known == column)
    }
}
