//! The records of a dataset whose rows are those of other records.

use std::path::{Path, PathBuf};

use plmkit_contract::{
    ALIASES_FILE, EmbeddingWork, KNOWN_FILE, Kind, ListedDataset, ListedFile, Manifest, RowDigest,
    Stop, plural,
};
use plmkit_store::{FileKind, read_sealed};
use serde_json::Value;

use crate::aliases::{List, Record, expand};
use crate::listing::{check_parts, read_dataset};
use crate::rejects::Rejects;
use crate::{CombineConfig, DatasetError, Parts};

/// An earlier dataset, which has rows of records of another one.
#[derive(Debug)]
pub struct Earlier {
    parts: Parts,
    /// The digest of all rows of the dataset that it was combined from: these are among its rows.
    combined_from: Option<RowDigest>,
}

impl Earlier {
    /// Takes the parts of the dataset in `folder`, or of one file, and compares them with its `dataset.json`.
    pub fn new(folder: &Path, parts: Parts) -> Result<Self, DatasetError> {
        let mut combined_from = None;
        if folder.is_dir()
            && let Some(listed) = read_dataset(folder)?
        {
            check_parts(&listed, folder, &parts.parts)?;
            combined_from = listed.combined_rows();
        }
        Ok(Self {
            parts,
            combined_from,
        })
    }

    /// Whether it has all rows of the dataset with this digest.
    fn has_rows_of(&self, digest: &str) -> bool {
        let digests = [Some(self.parts.digest()), self.combined_from];
        digests
            .iter()
            .flatten()
            .any(|found| found.to_string() == digest)
    }
}

/// The lists of the shards, and the datasets that have the rows of the second.
#[derive(Debug, Default)]
pub(crate) struct Shared<'a> {
    /// Records whose residues an earlier record has.
    aliases: Option<(PathBuf, ListedFile)>,
    /// Records whose residues an earlier dataset has, and these datasets.
    known: Option<(PathBuf, ListedFile, Vec<&'a Parts>)>,
    /// The number of records that are left out.
    pub(crate) left_out: u64,
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
            for (name, file, are_asked, otherwise) in [
                ("aliases", ALIASES_FILE, !config.distinct, "with --distinct"),
                (
                    "known",
                    KNOWN_FILE,
                    !config.known.is_empty(),
                    "without --known",
                ),
            ] {
                let records = listed.others.get(name).and_then(Value::as_u64);
                let records = records.unwrap_or_default();
                if are_asked && records > 0 {
                    let what = format!(
                        "no such file: expected {} of {name}; {otherwise} they are left out",
                        plural(records, "record")
                    );
                    return Err(DatasetError::missing(&shards.join(file), what));
                }
                shared.left_out += records;
            }
        }
        let path = shards.join("manifest.json");
        let manifest: Option<Manifest> = path
            .exists()
            .then(|| read_sealed(&path))
            .transpose()
            .map_err(|error| error.of_input(FileKind::Manifest))?;
        let (aliases, known) = manifest.map_or((None, None), |found| (found.aliases, found.known));
        if let Some(list) = aliases {
            if config.distinct {
                shared.left_out += list.rows;
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
            shared.left_out += known.list.rows;
            return Ok(shared);
        }
        let mut datasets = Vec::new();
        for expected in &known.datasets {
            let mut found = config.known.iter();
            let found = found.find(|found| found.has_rows_of(&expected.digest));
            let found = found.map(|found| &found.parts).ok_or_else(|| {
                let name = expected.sample.as_deref().unwrap_or("without a name");
                DatasetError::missing(
                    &path,
                    format!(
                        "expected --known with the dataset {name} of {}, {}",
                        plural(expected.rows, "row"),
                        expected.digest
                    ),
                )
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

    /// Returns the entries of `dataset.json` that count the records of the lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &'static str> {
        let aliases = self.aliases.iter().map(|_| "aliases");
        aliases.chain(self.known.iter().map(|_| "known"))
    }

    /// Returns the number of records in the lists.
    pub(crate) fn records(&self) -> u64 {
        let aliases = self.aliases.iter().map(|(_, list)| list.rows);
        aliases
            .chain(self.known.iter().map(|(_, list, _)| list.rows))
            .sum()
    }

    /// Writes the rows of all records to files in `folder`, as further parts. Records whose representative was rejected are added
    /// to `rejects`.
    pub(crate) fn expand(
        &self,
        parts: &mut Parts,
        rejects: &mut Rejects,
        folder: &Path,
        stop: &Stop,
    ) -> Result<(), DatasetError> {
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
        for (path, expected, kind, dataset, rows) in lists {
            let list = List {
                path,
                kind,
                dataset,
                rows,
            };
            let missing: Vec<Record> = expand(&list, &expected.digest, parts, folder, stop)?;
            for record in &missing {
                if dataset.is_some() || !rejects.add_copy(record) {
                    return Err(record.without_row(path));
                }
            }
        }
        Ok(())
    }
}
