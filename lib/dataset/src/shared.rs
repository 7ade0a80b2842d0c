//! The records of a dataset whose rows are those of other records.

use std::path::{Path, PathBuf};
use std::slice;

use plmkit_contract::{
    ALIASES_FILE, EmbeddingWork, KNOWN_FILE, Kind, KnownDataset, ListedDataset, ListedFile,
    RowDigest, Stop, plural,
};
use serde_json::{Value, json};

use crate::aliases::{List, expand};
use crate::listing::{add_to, read_manifest};
use crate::rejects::Rejects;
use crate::{CombineConfig, DatasetError, Parts};

/// An earlier dataset, which has rows of records of another one.
#[derive(Debug)]
pub struct Earlier {
    path: PathBuf,
    parts: Parts,
    /// The digest of all rows of the dataset that it was combined from: these are among its rows.
    combined_from: Option<RowDigest>,
}

impl Earlier {
    /// Takes the parts of the dataset at `path`, which are those of its `dataset.json` if it has one.
    pub fn new(path: &Path, parts: Parts, listed: Option<&ListedDataset>) -> Self {
        Self {
            path: path.to_owned(),
            parts,
            combined_from: listed.and_then(ListedDataset::combined_rows),
        }
    }

    /// The digests of its rows, and of those that it was combined from.
    fn digests(&self) -> Vec<String> {
        let digests = [Some(self.parts.digest()), self.combined_from];
        let mut digests: Vec<String> = digests.iter().flatten().map(RowDigest::to_string).collect();
        digests.dedup();
        digests
    }

    /// Whether it has all rows of a dataset.
    fn has_rows_of(&self, dataset: &KnownDataset) -> bool {
        self.digests().contains(&dataset.digest)
    }
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

/// The lists of the shards, and the datasets that have the rows of the second.
#[derive(Debug, Default)]
pub(crate) struct Shared<'a> {
    /// Records whose residues an earlier record has.
    aliases: Option<(PathBuf, ListedFile)>,
    /// Records whose residues an earlier dataset has, and these datasets.
    known: Option<(PathBuf, ListedFile, Vec<&'a Parts>)>,
    /// The records that are left out: those that another record stands for, and those of earlier datasets.
    pub(crate) left_out: [u64; 2],
}

impl<'a> Shared<'a> {
    /// Finds the lists that `config` asks for.
    pub(crate) fn find(
        config: &'a CombineConfig,
        parts: &Parts,
        listed: &ListedDataset,
    ) -> Result<Self, DatasetError> {
        let shards = config.folder.join("shards");
        let mut shared = Self::default();
        if !shards.is_dir() && listed.combined.is_none() {
            let lists = [
                ("aliases", ALIASES_FILE, !config.distinct, "with --distinct"),
                (
                    "known",
                    KNOWN_FILE,
                    !config.known.is_empty(),
                    "without --known",
                ),
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
        let path = shards.join("manifest.json");
        let has_manifest = shards.is_dir() && listed.combined.is_none();
        let manifest = has_manifest.then(|| read_manifest(&shards, listed));
        let manifest = manifest.transpose()?;
        let (aliases, known) = manifest.map_or((None, None), |found| (found.aliases, found.known));
        if let Some(list) = aliases {
            if config.distinct {
                shared.left_out[0] += list.rows;
            } else {
                shared.aliases = Some((shards.join(ALIASES_FILE), list));
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
        let is_known =
            |given: &Earlier| known.datasets.iter().any(|known| given.has_rows_of(known));
        if let Some(other) = config.known.iter().find(|given| !is_known(given)) {
            let what = format!(
                "expected a dataset that fasta-shard --known knew: {}; found {}",
                described(&known.datasets),
                other.digests().join(", combined from ")
            );
            return Err(DatasetError::content(&other.path, what));
        }
        let mut datasets = Vec::new();
        for expected in &known.datasets {
            let mut found = config.known.iter();
            let found = found.find(|found| found.has_rows_of(expected));
            let found = found.map(|found| &found.parts).ok_or_else(|| {
                let expected = described(slice::from_ref(expected));
                let what = format!("expected --known with the dataset {expected}, too");
                DatasetError::missing(&path, what)
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
            datasets.push(found);
        }
        shared.known = Some((shards.join(KNOWN_FILE), known.list, datasets));
        Ok(shared)
    }

    /// Returns the digests of the lists.
    pub(crate) fn digests(&self) -> Vec<&str> {
        let aliases = self.aliases.iter().map(|(_, list)| &*list.digest);
        let known = self.known.iter().map(|(_, list, _)| &*list.digest);
        aliases.chain(known).collect()
    }

    /// Adds the rows of all records to the counts of `dataset.json`: those that are `truncated`, and the lengths of their proteins.
    pub(crate) fn count(&self, listed: &mut ListedDataset, [truncated, length]: [u64; 2]) {
        let options = listed.shard_options.as_ref();
        let kept = options.and_then(|options| options.get("max_residues")?.as_u64());
        let counts = &mut listed.others;
        add_to(counts, "truncated", truncated);
        let cut_off = kept.map_or(0, |kept| length.saturating_sub(truncated * kept));
        add_to(counts, "residues_truncated", cut_off);
        let lists = [
            ("aliases", self.aliases.is_some()),
            ("known", self.known.is_some()),
        ];
        for (name, _) in lists.iter().filter(|(_, have_rows)| *have_rows) {
            counts.insert((*name).to_owned(), json!(0));
        }
    }

    /// Returns the number of records in the lists.
    pub(crate) fn records(&self) -> u64 {
        let aliases = self.aliases.iter().map(|(_, list)| list.rows);
        aliases
            .chain(self.known.iter().map(|(_, list, _)| list.rows))
            .sum()
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
        let own = Parts {
            parts: parts.parts.clone(),
            layout: parts.layout.clone(),
        };
        let mut lists = Vec::new();
        if let Some((path, expected)) = &self.aliases {
            lists.push((path, expected, Kind::Aliases, None, &own));
        }
        if let Some((path, expected, datasets)) = &self.known {
            for (number, rows) in (0..).zip(datasets) {
                lists.push((path, expected, Kind::Known, Some(number), *rows));
            }
        }
        let mut truncated = [0; 2];
        for (path, expected, kind, dataset, rows) in lists {
            let list = List {
                path,
                kind,
                dataset,
                rows,
            };
            let expanded = expand(&list, &expected.digest, parts, folder, stop)?;
            truncated[0] += expanded.truncated;
            truncated[1] += expanded.truncated_length;
            for record in &expanded.missing {
                if dataset.is_some() || !rejects.add_copy(record) {
                    return Err(record.without_row(path));
                }
            }
        }
        Ok(truncated)
    }
}
