//! The records of a dataset whose rows are those of other records.

use std::path::{Path, PathBuf};

use plmkit_contract::{
    ALIASES_FILE, EmbeddingWork, KNOWN_FILE, Kind, ListedFile, Manifest, Stop, plural,
};
use plmkit_store::{FileKind, read_sealed};

use crate::aliases::{List, Record, expand};
use crate::listing::Listing;
use crate::rejects::Rejects;
use crate::{CombineConfig, DatasetError, Parts};

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
        listing: &Listing,
    ) -> Result<Self, DatasetError> {
        let shards = config.folder.join("shards");
        let mut shared = Self::default();
        if !shards.is_dir() {
            let options = listing.others.get("shard_options");
            let has_aliases = options.is_some_and(|options| options["dedup"] == true);
            if has_aliases && listing.combined.is_none() && !config.distinct {
                let what = "no such file: expected the records whose residues an earlier record has; --distinct leaves them out";
                return Err(DatasetError::missing(&shards.join(ALIASES_FILE), what));
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
            let found = config.known.iter();
            let mut found = found.filter(|found| found.digest().to_string() == expected.digest);
            let found = found.next().ok_or_else(|| {
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
