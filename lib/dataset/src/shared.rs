//! The records of a dataset whose rows are those of other records.

use std::path::Path;
use std::slice;

use plmkit_contract::{
    ALIASES_FILE, EmbeddingWork, KNOWN_FILE, KnownDataset, ListedDataset, MANIFEST_FILE, Manifest,
    RowDigest, Stop, plural,
};
use serde_json::{Value, json};

use crate::aliases::{List, Runs};
use crate::listing::{add_to, read_manifest};
use crate::rejects::Rejects;
use crate::{CombineConfig, DatasetError, OpenedDataset, Parts};

/// The digests of the rows of an earlier dataset, and of those that it was combined from, which are among its rows.
fn digests(dataset: &OpenedDataset) -> Vec<String> {
    let listed = dataset.listed.as_ref();
    let digests = [
        Some(dataset.parts.digest()),
        listed.and_then(ListedDataset::combined_rows),
    ];
    let mut digests: Vec<String> = digests.iter().flatten().map(RowDigest::to_string).collect();
    digests.dedup();
    digests
}

/// Describes datasets by sample, rows and digest.
fn described(datasets: &[KnownDataset]) -> String {
    let datasets = datasets.iter().map(|dataset| {
        let name = dataset.sample.as_deref().unwrap_or("without a name");
        let rows = plural(dataset.rows, "row");
        format!("{name} of {rows}, {}", dataset.digest)
    });
    datasets.collect::<Vec<_>>().join("; ")
}

/// The lists of the records that get rows.
#[derive(Debug, Default)]
pub(crate) struct Shared<'a> {
    pub(crate) lists: Vec<List<'a>>,
    /// The records that are left out: those that another record stands for, and those of earlier datasets.
    pub(crate) left_out: [u64; 2],
}

impl<'a> Shared<'a> {
    /// Finds the lists that `config` asks for.
    pub(crate) fn find(
        config: &'a CombineConfig,
        folder: &Path,
        parts: &Parts,
        listed: &ListedDataset,
    ) -> Result<Self, DatasetError> {
        let shards = folder.join("shards");
        let mut shared = Self::default();
        if !shards.is_dir() && listed.combined.is_none() {
            let has_known = !config.known.is_empty();
            let lists = [
                ("aliases", ALIASES_FILE, !config.distinct, "with --distinct"),
                ("known", KNOWN_FILE, has_known, "without --known"),
            ];
            for ((name, file, are_asked, otherwise), left_out) in
                lists.into_iter().zip(&mut shared.left_out)
            {
                let records = listed.others.get(name).and_then(Value::as_u64);
                let records = records.unwrap_or_default();
                if are_asked && records > 0 {
                    let what = format!(
                        "no such file: expected {} of {name}; {otherwise} they are left out",
                        plural(records, "record")
                    );
                    return Err(DatasetError::missing(&shards.join(file), what));
                }
                *left_out += records;
            }
        }
        let has_manifest = shards.is_dir() && listed.combined.is_none();
        let manifest = has_manifest.then(|| read_manifest(&shards, Some(listed)));
        let Manifest { aliases, known, .. } = manifest.transpose()?.unwrap_or_default();
        if let Some(list) = aliases {
            if config.distinct {
                shared.left_out[0] += list.rows;
            } else {
                shared.lists.push(List {
                    path: shards.join(ALIASES_FILE),
                    listed: list,
                    known_in: None,
                });
            }
        }
        let Some(known) = known else {
            return if config.known.is_empty() {
                Ok(shared)
            } else {
                let what = "--known: the dataset has no records of earlier datasets".to_owned();
                Err(DatasetError::Usage(what))
            };
        };
        if config.known.is_empty() {
            shared.left_out[1] += known.list.rows;
            return Ok(shared);
        }
        let has_rows_of =
            |given: &OpenedDataset, known: &KnownDataset| digests(given).contains(&known.digest);
        let is_known =
            |given: &OpenedDataset| known.datasets.iter().any(|known| has_rows_of(given, known));
        if let Some(other) = config.known.iter().find(|given| !is_known(given)) {
            let what = format!(
                "expected a dataset that fasta-shard --known knew: {}; found {}",
                described(&known.datasets),
                digests(other).join(", combined from ")
            );
            return Err(DatasetError::content(other.folder.path(), what));
        }
        for (number, expected) in (0..).zip(&known.datasets) {
            let mut found = config.known.iter();
            let found = found.find(|found| has_rows_of(found, expected));
            let found = found.map(|found| &found.parts).ok_or_else(|| {
                let expected = described(slice::from_ref(expected));
                let what = format!("expected --known with the dataset {expected}, too");
                DatasetError::missing(&shards.join(MANIFEST_FILE), what)
            })?;
            let works =
                [parts, found].map(|parts| EmbeddingWork::new(&parts.parts[0].provenance.options));
            let different = works[0].difference(&works[1]);
            if let Some(what) = different.or_else(|| {
                let same = found.layout.columns == parts.layout.columns
                    && found.layout.dim == parts.layout.dim;
                (!same).then(|| "expected the columns of this dataset, found others".to_owned())
            }) {
                return Err(DatasetError::content(&found.parts[0].path, what));
            }
            shared.lists.push(List {
                path: shards.join(KNOWN_FILE),
                listed: known.list.clone(),
                known_in: Some((number, found)),
            });
        }
        Ok(shared)
    }

    /// The lists, each once: that of known records is one list of several datasets.
    fn files(&self) -> impl Iterator<Item = &List<'a>> {
        let lists = self.lists.iter();
        lists.filter(|list| list.known_in.is_none_or(|(number, _)| number == 0))
    }

    /// Returns the digests of the lists.
    pub(crate) fn digests(&self) -> Vec<&str> {
        self.files().map(|list| &*list.listed.digest).collect()
    }

    /// Adds the rows of all records to the counts of `dataset.json`: those that are `truncated`, and the lengths of their proteins.
    pub(crate) fn count(&self, listed: &mut ListedDataset, [truncated, length]: [u64; 2]) {
        let options = listed.shard_options.as_ref();
        let kept = options.and_then(|options| options.get("max_residues")?.as_u64());
        let counts = &mut listed.others;
        add_to(counts, "truncated", truncated);
        let cut_off = kept.map_or(0, |kept| length.saturating_sub(truncated * kept));
        add_to(counts, "residues_truncated", cut_off);
        for list in self.files() {
            let name = if list.known_in.is_some() {
                "known"
            } else {
                "aliases"
            };
            counts.insert(name.to_owned(), json!(0));
        }
    }

    /// Returns the number of records in the lists.
    pub(crate) fn records(&self) -> u64 {
        self.files().map(|list| list.listed.rows).sum()
    }

    /// Writes the rows of all records to files in `folder`, as further parts. Records whose representative was rejected are added
    /// to `rejects`. Returns the number of truncated rows, and the lengths of their proteins together.
    pub(crate) fn expand(
        &self,
        parts: &mut Parts,
        rejects: &mut Rejects,
        folder: &Path,
        stop: &Stop,
    ) -> Result<[u64; 2], DatasetError> {
        // The runs of one list are no rows of the other.
        let own = parts.clone();
        let mut runs = Runs {
            parts,
            rejects,
            folder,
            batches: Vec::new(),
            bytes: 0,
            truncated: [0; 2],
        };
        for list in &self.lists {
            runs.add_list(list, &own, stop)?;
        }
        Ok(runs.truncated)
    }
}
