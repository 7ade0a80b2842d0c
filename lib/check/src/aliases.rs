//! Records that are in no shard, because another row holds their vectors.

use plmkit_contract::{
    AliasRow, EmbeddingWork, KnownSummary, ListedFile, Manifest, RowKey, SequenceDigest,
};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::files::EmbeddedFile;
use crate::violation::Violations;

/// The lists of records that are in no shard, because another row holds their vectors.
///
/// 40 bytes for each record whose representative is in a shard.
#[derive(Debug, Default)]
pub struct AliasLists {
    /// By representative, after [`sort`](Self::sort).
    aliases: Vec<Alias>,
    pub(crate) of_own: RoaringTreemap,
    pub(crate) of_known: RoaringTreemap,
    /// Records in a list more than once.
    pub(crate) doubled: Violations,
    /// Known records of a dataset that the manifest does not list.
    pub(crate) unknown_dataset: Violations,
    /// Lists that are not those of the manifest.
    pub(crate) altered: Violations,
}

#[derive(Debug)]
struct Alias {
    ordinal: u64,
    representative: u64,
    digest: SequenceDigest,
    length: u32,
    truncated: bool,
}

impl AliasLists {
    /// Adds a record of a list.
    pub fn add(&mut self, row: &AliasRow<'_>, manifest: &Manifest) {
        let own = row.dataset.is_none();
        let listed = if own {
            &mut self.of_own
        } else {
            &mut self.of_known
        };
        if !listed.insert(row.ordinal) {
            let problem = "in the list more than once";
            self.doubled
                .add(Some(row.ordinal), None, Some(row.id), problem);
        }
        let datasets = manifest
            .known
            .as_ref()
            .map_or(0, |known| known.datasets.len());
        match row.dataset {
            None => self.aliases.push(Alias {
                ordinal: row.ordinal,
                representative: row.representative,
                digest: row.digest,
                length: row.length,
                truncated: row.truncated,
            }),
            Some(dataset) if dataset as usize >= datasets => {
                let problem = format_args!(
                    "known from dataset {dataset}: expected one of the {datasets} of the manifest"
                );
                let unknown = &mut self.unknown_dataset;
                unknown.add(Some(row.ordinal), None, Some(row.id), problem);
            }
            Some(_) => {}
        }
    }

    /// Compares a list whose row digest is `digest` with that of the manifest, if it has one.
    pub fn add_file(&mut self, name: &str, digest: &str, expected: Option<&ListedFile>) {
        let Some(ListedFile {
            digest: expected, ..
        }) = expected
        else {
            let problem = format_args!("{name}: the manifest lists no such file");
            self.altered.add_file(problem);
            return;
        };
        if digest != expected {
            self.altered.add_file(format_args!(
                "{name}: not the list of the manifest: expected rows {expected}, found {digest}"
            ));
        }
    }

    /// Ends the lists.
    pub fn sort(&mut self) {
        self.aliases
            .sort_unstable_by_key(|alias| (alias.representative, alias.ordinal));
    }

    /// Whether no row of a shard stands for another record.
    pub fn is_empty(&self) -> bool {
        self.aliases.is_empty()
    }

    /// Whether a row of a shard stands for other records.
    pub fn has(&self, representative: u64) -> bool {
        self.of(representative).next().is_some()
    }

    /// The records that this protein of a shard stands for.
    fn of(&self, representative: u64) -> impl Iterator<Item = &Alias> {
        let first = self
            .aliases
            .partition_point(|alias| alias.representative < representative);
        let rest = self.aliases[first..].iter();
        rest.take_while(move |alias| alias.representative == representative)
    }

    /// Records whose representative is not in the `shards`.
    pub(crate) fn without_representative(&self, shards: &RoaringTreemap) -> Violations {
        let mut violations = Violations::default();
        for alias in &self.aliases {
            let representative = alias.representative;
            if !shards.contains(representative) {
                let problem =
                    format_args!("an alias of ordinal {representative}, which is in no shard");
                violations.add_record(alias.ordinal, problem);
            }
        }
        violations
    }
}

/// What was found of the aliases of some proteins.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct AliasFindings {
    pub(crate) compared: u64,
    pub(crate) differing: Violations,
}

impl AliasFindings {
    /// Compares a protein of a shard with the records that it stands for.
    pub(crate) fn add(&mut self, lists: &AliasLists, protein: &RowKey) {
        for alias in lists.of(protein.ordinal) {
            self.compared += 1;
            if (alias.digest, alias.length, alias.truncated)
                != (protein.digest, protein.length, protein.truncated)
            {
                let representative = protein.ordinal;
                let problem = format_args!(
                    "an alias of ordinal {representative}, which has other residues: digest or length differ"
                );
                self.differing.add_record(alias.ordinal, problem);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.differing.merge(other.differing);
    }
}

/// The embeddings that were made by other work than the known datasets whose sequences the shards lack.
pub(crate) fn other_work(embeddings: &[EmbeddedFile], known: Option<&KnownSummary>) -> Violations {
    let mut violations = Violations::default();
    for file in embeddings {
        let work = EmbeddingWork::new(&file.provenance.options);
        if let Some(difference) = known.and_then(|known| known.work.difference(&work)) {
            violations.add_file(format_args!(
                "{}: not made as the known datasets: {difference}",
                file.name
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protein_is_compared_with_all_its_aliases() {
        let manifest = serde_json::json!({
            "contract": "1", "tool": "fasta-shard", "version": "0", "options": {}, "inputs": [], "records": 5,
            "accepted": 2, "rejected": {}, "rejects_digest": "", "rows": 2, "residues": 0, "tokens": 0, "changed": {},
            "lengths": {"min": null, "max": null, "mean": null, "histogram": []}, "shards": [],
        });
        let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
        let digest = SequenceDigest::new(b"MKV");
        let alias = |ordinal, representative, dataset| AliasRow {
            ordinal,
            id: "P",
            description: None,
            length: 3,
            truncated: false,
            digest,
            dataset,
            representative,
        };
        let mut lists = AliasLists::default();
        for row in [
            alias(4, 0, None),
            alias(2, 0, None),
            alias(3, 1, None),
            alias(3, 1, None),
        ] {
            lists.add(&row, &manifest);
        }
        lists.add(&alias(5, 9, Some(0)), &manifest);
        lists.sort();
        assert_eq!((lists.doubled.count, lists.unknown_dataset.count), (1, 1));
        let mut found = AliasFindings::default();
        let mut protein = RowKey {
            ordinal: 0,
            id: "Q",
            start: 0,
            length: 3,
            truncated: false,
            digest,
            n_windows: 1,
        };
        found.add(&lists, &protein);
        assert_eq!((found.compared, found.differing.count), (2, 0));
        protein.length = 4;
        found.add(&lists, &protein);
        assert_eq!((found.compared, found.differing.count), (4, 2));
        let without = lists.without_representative(&[0].into());
        assert_eq!(without.count, 2);
        assert_eq!(
            without.first[0].to_string(),
            "ordinal 3: an alias of ordinal 1, which is in no shard"
        );
    }
}
