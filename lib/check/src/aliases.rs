//! Records that are in no shard, because another row holds their vectors.

use plmkit_contract::{AliasRow, ListedFile, Manifest, RowKey, SequenceDigest};
use roaring::RoaringTreemap;

use crate::check::Tallies;
use crate::checks::{manifest, ordinals, records};
use crate::violation::FILE;

/// The lists of records that are in no shard, because another row holds their vectors.
///
/// 40 bytes for each record whose representative is in a shard.
#[derive(Debug, Default)]
pub struct AliasLists {
    /// By representative, after [`sort`](Self::sort).
    aliases: Vec<Alias>,
    pub(crate) of_own: RoaringTreemap,
    pub(crate) of_known: RoaringTreemap,
    /// What is wrong with the lists, for the checks `ordinals` and `manifest`.
    pub(crate) wrong: Tallies,
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
        let listed = match row.dataset {
            None => &mut self.of_own,
            Some(_) => &mut self.of_known,
        };
        if !listed.insert(row.key.ordinal) {
            let problem = "in the list more than once";
            self.wrong.add(ordinals::listed_twice, row, problem);
        }
        let Some(dataset) = row.dataset else {
            self.aliases.push(Alias {
                ordinal: row.key.ordinal,
                representative: row.representative,
                digest: row.key.digest,
                length: row.key.length,
                truncated: row.key.truncated,
            });
            return;
        };
        let known = manifest.known.as_ref();
        let datasets = known.map_or(0, |known| known.datasets.len());
        if dataset as usize >= datasets {
            let problem = format_args!(
                "known from dataset {dataset}: expected one of the {datasets} of the manifest"
            );
            self.wrong.add(manifest::unknown_dataset, row, problem);
        }
    }

    /// Compares a list whose row digest is `digest` with that of the manifest, if it has one.
    pub fn add_file(&mut self, name: &str, digest: &str, expected: Option<&ListedFile>) {
        let problem = match expected {
            None => format!("{name}: the manifest lists no such file"),
            Some(ListedFile { digest: listed, .. }) if listed != digest => format!(
                "{name}: not the list of the manifest: expected rows {listed}, found {digest}"
            ),
            Some(_) => return,
        };
        self.wrong.add(manifest::altered_lists, FILE, problem);
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

    /// Adds the records whose representative is not in the `shards`.
    pub(crate) fn list_without_representative(
        &self,
        shards: &RoaringTreemap,
        tallies: &mut Tallies,
    ) {
        for alias in &self.aliases {
            let representative = alias.representative;
            if !shards.contains(representative) {
                let problem =
                    format_args!("an alias of ordinal {representative}, which is in no shard");
                tallies.add(ordinals::no_representative, alias.ordinal, problem);
            }
        }
    }

    /// Compares a protein of a shard with the records that it stands for.
    pub(crate) fn compare(&self, protein: &RowKey, tallies: &mut Tallies) {
        for alias in self.of(protein.ordinal) {
            tallies.count(records::aliases_compared, 1);
            if (alias.digest, alias.length, alias.truncated)
                != (protein.digest, protein.length, protein.truncated)
            {
                let representative = protein.ordinal;
                let problem = format_args!(
                    "an alias of ordinal {representative}, which has other residues: digest or length differ"
                );
                tallies.add(records::other_alias, alias.ordinal, problem);
            }
        }
    }
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
            key: RowKey {
                ordinal,
                id: "P",
                start: 0,
                length: 3,
                truncated: false,
                digest,
                n_windows: 1,
            },
            description: None,
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
        let count = |tallies: Tallies, check, kind| tallies.result(check).counts[kind];
        assert_eq!(count(lists.wrong.clone(), "ordinals", "listed_twice"), 1);
        assert_eq!(count(lists.wrong.clone(), "manifest", "unknown_dataset"), 1);
        for (length, differing) in [(3, 0), (4, 2)] {
            let protein = RowKey {
                ordinal: 0,
                id: "Q",
                start: 0,
                length,
                truncated: false,
                digest,
                n_windows: 1,
            };
            let mut found = Tallies::default();
            lists.compare(&protein, &mut found);
            let records = found.result("records");
            assert_eq!(records.counts["aliases_compared"], 2);
            assert_eq!(records.counts["other_alias"], differing);
        }
        let mut found = Tallies::default();
        lists.list_without_representative(&[0].into(), &mut found);
        let ordinals = found.result("ordinals");
        assert_eq!(ordinals.counts["no_representative"], 2);
        assert_eq!(
            ordinals.violations[0].to_string(),
            "ordinal 3: an alias of ordinal 1, which is in no shard"
        );
    }
}
