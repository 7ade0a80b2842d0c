//! A folder of results as the workflows lay it out, and the file that names it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plmkit_check::{CheckOutcome, Parts};
use plmkit_cli::{Exit, Fault, NamedPath, Stop, files_in, files_of, is_hidden, keep_apart};
use plmkit_contract::{
    DATASET_FILE, FAILED_FILE, ListedDataset, ListedFile, Manifest, io_text, path_text, seal,
};
use plmkit_dataset::{
    DatasetError, check_parts, check_passed, explain_missing, read_dataset, read_lists,
};
use plmkit_store::write_report;

use crate::args::Args;
use crate::lists::without_lists;
use crate::report::VerdictReport;

/// The folder of its parts.
const EMBEDDINGS: &str = "embeddings";

/// Where the parts of a dataset are.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    folder: PathBuf,
}

impl Dataset {
    /// The dataset of a folder, or of its `dataset.json`.
    pub(crate) fn new(path: PathBuf) -> Self {
        let folder = match path.parent() {
            Some(parent) if path.file_name() == Some(DATASET_FILE.as_ref()) => parent.to_owned(),
            _ => path,
        };
        Self { folder }
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What no output may replace: the file that names it, and whatever readers find in the folder of its parts.
    pub(crate) fn own(&self) -> [PathBuf; 2] {
        [DATASET_FILE, EMBEDDINGS].map(|name| self.folder.join(name))
    }

    /// The embeddings files, sorted by name.
    pub(crate) fn embeddings(&self) -> Result<Vec<PathBuf>, Fault> {
        if !self.folder.join(EMBEDDINGS).is_dir() {
            let what = if self.folder.exists() {
                "expected the folder of one sample's results, with a folder embeddings in it"
            } else {
                "no such file or folder"
            };
            return Err(fault(&self.folder, Exit::NoInput, what));
        }
        files_of(vec![self.folder.join(EMBEDDINGS)], &["parquet"])
    }

    /// Opens the embeddings files of the folder, or the file itself. Where `dataset.json` lists them, they must be these.
    pub(crate) fn open(&self, stop: &Stop) -> Result<Opened<'_>, Fault> {
        let folder = &*self.folder;
        let (paths, listed) = if folder.is_file() {
            (vec![folder.to_owned()], None)
        } else {
            (self.embeddings()?, read_dataset(folder)?)
        };
        let parts = plmkit_dataset::Parts::open(&paths, stop)?;
        if let Some(listed) = &listed {
            check_parts(listed, folder, &parts.parts)?;
        }
        Ok(Opened {
            folder,
            parts,
            listed,
        })
    }

    /// Opens a dataset whose validation has passed, if there was one.
    pub(crate) fn open_passed(&self, stop: &Stop) -> Result<Opened<'_>, Fault> {
        let opened = self.open(stop)?;
        opened.check_passed()?;
        Ok(opened)
    }

    /// The file that names it.
    fn file(&self) -> PathBuf {
        self.folder.join(DATASET_FILE)
    }

    /// A path as `dataset.json` has it: from its folder on.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.folder).unwrap_or(path)
    }

    /// Adds what is in the folder to what is to be checked.
    pub(crate) fn add_files(&self, args: &mut Args) -> Result<(), Fault> {
        let all = |name: &str, extension| files_of(vec![self.folder.join(name)], &[extension]);
        args.embeddings = self.embeddings()?;
        if !self.has_shards() {
            return Ok(());
        }
        args.shards = without_lists(all("shards", "parquet")?);
        args.manifest = Some(self.folder.join("shards/manifest.json"));
        args.rejects = vec![self.folder.join("shards/rejects.csv")];
        // No list is written, or kept, of shards that were embedded as a whole.
        let lists = self.folder.join("rejects");
        if lists.is_dir() {
            let lists = files_in(&lists, &["csv"]);
            let lists = lists.map_err(|error| fault(&self.folder, Exit::Io, &io_text(&error)))?;
            args.rejects.extend(lists);
        }
        Ok(())
    }

    /// Whether the shards are there: otherwise `dataset.json` says what is expected.
    pub(crate) fn has_shards(&self) -> bool {
        self.folder.join("shards").is_dir()
    }

    /// That every shard of the manifest is there: without one there can be no verdict, and the earlier one stays.
    pub(crate) fn check_shards(&self, manifest: &Manifest) -> Result<(), Fault> {
        let missing = manifest.shards.iter().find_map(|shard| {
            let path = self.folder.join("shards").join(&shard.file);
            (!path.exists()).then_some(path)
        });
        missing.map_or(Ok(()), |path| {
            let what =
                "no such file: expected every shard that manifest.json lists, or no folder shards";
            Err(fault(&path, Exit::NoInput, what))
        })
    }

    /// Writes `dataset.json`. One that says the same stays, since what is archived may be read-only; where it may, its time says when
    /// it was last found right. A verdict that failed is written beside one that passed.
    pub(crate) fn write(&self, report: &VerdictReport) -> Result<(), Fault> {
        let failed = self.folder.join(FAILED_FILE);
        let passed = report.outcome == CheckOutcome::Pass;
        let known = || read_dataset(&self.folder).ok().flatten();
        if !passed && known().is_some_and(|listed| listed.passed()) {
            return Ok(write_report(&failed, &seal(report))?);
        }
        let (path, text) = (self.file(), seal(report));
        if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        } else {
            write_report(&path, &text)?;
        }
        match fs::remove_file(&failed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(fault(&failed, Exit::CannotCreate, &io_text(&error)))
            }
            _ => Ok(()),
        }
    }

    /// What is known of the parts before they are read.
    pub(crate) fn parts(&self) -> Result<Parts, Fault> {
        let strays = self.strays();
        let strays = strays.map_err(|error| fault(&self.folder, Exit::Io, &io_text(&error)))?;
        if self.has_shards() {
            return Ok(Parts {
                strays,
                ..Parts::default()
            });
        }
        let mut listed = self.listed()?;
        let is_of_shards = |list: &ListedFile| Path::new(&list.file).starts_with("shards");
        listed.rejects.retain(|list| !is_of_shards(list));
        read_lists(&listed, &self.folder)?;
        Ok(Parts {
            listed: Some(listed.embeddings.iter().map(ListedFile::part).collect()),
            failed_before: !listed.passed(),
            strays,
        })
    }

    /// What readers find in the folder of embeddings beside the embeddings. What is hidden they pass over.
    fn strays(&self) -> io::Result<Vec<String>> {
        let mut strays = Vec::new();
        for entry in fs::read_dir(self.folder.join(EMBEDDINGS))? {
            let path = entry?.path();
            let part = path.extension().is_some_and(|found| found == "parquet") && path.is_file();
            if !is_hidden(&path) && !part {
                strays.push(path_text(self.relative(&path)));
            }
        }
        strays.sort();
        Ok(strays)
    }

    /// What `dataset.json` lists.
    fn listed(&self) -> Result<ListedDataset, Fault> {
        read_dataset(&self.folder)?.ok_or_else(|| {
            let what = format!(
                "expected a folder shards, or {DATASET_FILE} of an earlier validation: no such file"
            );
            fault(&self.folder, Exit::NoInput, &what)
        })
    }
}

/// The parts of a dataset, which are those of its `dataset.json`.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    folder: &'a Path,
    pub(crate) parts: plmkit_dataset::Parts,
    pub(crate) listed: Option<ListedDataset>,
}

impl Opened<'_> {
    /// Checks that the validation, if there was one, has passed.
    pub(crate) fn check_passed(&self) -> Result<(), DatasetError> {
        let listed = self.listed.as_ref();
        listed.map_or(Ok(()), |listed| check_passed(listed, self.folder))
    }

    /// Checks that no output is a file of the dataset, or one of `others`.
    pub(crate) fn keep_apart(
        &self,
        others: &[NamedPath],
        outputs: &[NamedPath],
    ) -> Result<(), Fault> {
        let mut files: Vec<PathBuf> = Dataset::new(self.folder.to_owned()).own().into();
        files.extend(self.parts.parts.iter().map(|part| part.path.clone()));
        for lists in ["shards", "rejects"] {
            let found = files_in(&self.folder.join(lists), &["parquet", "csv", "json"]);
            files.extend(found.unwrap_or_default());
        }
        let files = files.iter().map(|file| ("the dataset", file.as_path()));
        let inputs: Vec<NamedPath> = files.chain(others.iter().copied()).collect();
        keep_apart(&inputs, outputs)
    }

    /// Adds to the error of ids without rows which of them have the residues of other records.
    pub(crate) fn explain(&self, error: DatasetError, stop: &Stop) -> Fault {
        let shards = self.folder.join("shards");
        explain_missing(error, &shards, self.listed.as_ref(), &self.parts, stop).into()
    }
}

fn fault(path: &Path, exit: Exit, what: &str) -> Fault {
    Fault::new(exit, format!("{}: {what}", path_text(path)))
}
