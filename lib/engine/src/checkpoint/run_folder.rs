//! The folder of a run's checkpoints, beside the output or in another place.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use plmkit_kit::{Quoted, path_text};
use plmkit_store::{
    AtomicFile, Lock, StoreError, UnfinishedEmbeddings, UnfinishedFolder, hidden_name, remove_file,
    remove_unfinished, strip_temporary_suffix,
};

use super::block::{OutputBlock, open_part};
use crate::config::Job;
use crate::work::Work;

const FOLDER_SUFFIX: &str = ".plmkit-run";
const LOCK: &str = "lock";
const PART_PREFIX: &str = "part-";
const PART_SUFFIX: &str = ".parquet";
/// The output under construction.
const BLOCKS: &str = "part-blocks.parquet";
/// The digests of the rejects lists that this output was about to publish, one on each line.
const REJECTS: &str = "rejects";
/// The marks of crashes.
const CRASHES: &str = "crashes";

/// Returns the folder of what is saved of an output that is not complete: beside it, or in `within`.
pub fn run_folder(out: &Path, within: Option<&Path>) -> PathBuf {
    let name = hidden_name(out.file_name().unwrap_or_default(), FOLDER_SUFFIX);
    match within {
        None => out.with_file_name(name),
        Some(within) => within.join(name),
    }
}

/// Whether batches of an output were saved there. A lock alone is no work.
pub fn has_saved_batches(out: &Path, within: Option<&Path>) -> bool {
    let entries = entries(&run_folder(out, within)).unwrap_or_default();
    entries.iter().any(|entry| name_of(entry) != LOCK)
}

/// The folder `.NAME.plmkit-run` of an output `NAME`. Its lock is the claim on the output.
#[derive(Debug)]
pub(crate) struct RunFolder(UnfinishedFolder);

impl RunFolder {
    /// Claims the output, or fails if another run has the claim. The folder is beside the output, or in `within`, which is
    /// created if missing.
    pub(crate) fn claim(out: &Path, within: Option<&Path>) -> Result<Self, StoreError> {
        let path = run_folder(out, within);
        if let Some(within) = within {
            fs::create_dir_all(within).map_err(StoreError::cannot_create(within))?;
        }
        let cannot_create = StoreError::cannot_create(&path);
        loop {
            match fs::create_dir(&path) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(StoreError::cannot_create(within.unwrap_or(out))(source));
                }
                _ => {}
            }
            // A symbolic link could lead to other people's files.
            if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                return Err(cannot_create(io::ErrorKind::NotADirectory.into()));
            }
            let entries = entries(&path).unwrap_or_default();
            let mut entries = entries.iter();
            if let Some(entry) = entries.find(|entry| is_own(&name_of(entry)) && !is_file(entry)) {
                let why =
                    io::Error::other("expected a file of a run, found something else; remove it");
                return Err(StoreError::cannot_create(&entry.path())(why));
            }
            match Lock::acquire(&path.join(LOCK), out) {
                // The run that had the lock has just ended and removed the folder.
                Err(StoreError::Create { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(StoreError::Create { source, .. }) if within.is_some() => {
                    return Err(cannot_create(source));
                }
                lock => return Ok(Self(UnfinishedFolder::temporary(path, lock?))),
            }
        }
    }

    /// Whether the output is still this run's, see [`Lock::check`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }

    /// Whether another run may still write the files in the folder.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// The path of the part that starts with the batch `first`.
    pub(crate) fn part(&self, first: u64) -> PathBuf {
        let name = format!("{PART_PREFIX}{first:08}{PART_SUFFIX}");
        self.0.file(&name)
    }

    /// The path of the output under construction.
    pub(crate) fn blocks(&self) -> PathBuf {
        self.0.file(BLOCKS)
    }

    /// The path of the marks of crashes.
    pub(crate) fn crashes(&self) -> PathBuf {
        self.0.file(CRASHES)
    }

    /// The path that errors name if the output under construction cannot be written.
    pub(crate) fn named(&self, job: &Job) -> PathBuf {
        match job.checkpoint_dir {
            None => job.out.clone(),
            Some(_) => self.blocks(),
        }
    }

    /// Opens the output of `work` under construction and lists its blocks, if it has a footer. See [`OutputBlock::all_of`].
    pub(crate) fn open_blocks(
        &self,
        work: &Work<'_>,
    ) -> Result<Option<(UnfinishedEmbeddings, Vec<OutputBlock>)>, StoreError> {
        let path = self.blocks();
        let named = self.named(work.job);
        let threads = work.config.threads;
        let opened = UnfinishedEmbeddings::open(&path, &named, work.layout, threads)?;
        let Some((file, found)) = opened else {
            return Ok(None);
        };
        let blocks = OutputBlock::all_of(&path, found, &work.provenance)?;
        let row_groups: usize = blocks.iter().map(|block| block.row_groups).sum();
        if row_groups == file.row_groups() {
            Ok(Some((file, blocks)))
        } else {
            let what = "not the row groups of its blocks";
            Err(StoreError::malformed(&path, what))
        }
    }

    /// Makes the error that the folder belongs to other work.
    pub(crate) fn other_work(&self, difference: &str) -> StoreError {
        let difference = format!("an unfinished run of which {difference}");
        StoreError::exists(self.0.path(), difference)
    }

    /// Lists the parts in the folder, in ascending order. Removes unfinished ones.
    pub(crate) fn parts(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = entries(self.0.path()).map_err(StoreError::cannot_read(self.0.path()))?;
        let names = entries.iter().filter(|entry| is_file(entry)).map(name_of);
        let mut parts = Vec::new();
        for name in names {
            match strip_temporary_suffix(&name) {
                None if is_part(&name) => parts.push(self.0.file(&name)),
                Some(part) if is_part(part) => remove_file(&self.0.file(&name))?,
                _ => {}
            }
        }
        parts.sort();
        Ok(parts)
    }

    /// Notes the digest of a rejects list before the list is published.
    pub(crate) fn note_list(&self, digest: &str) -> Result<(), StoreError> {
        // An earlier list may still be at the path.
        let mut all = self.published_lists();
        all.push(digest.to_owned());
        let mut file = AtomicFile::create(&self.0.file(REJECTS))?;
        file.append(all.join("\n").as_bytes())?;
        file.finish()
    }

    /// The digests of the rejects lists that killed runs published or were about to publish.
    pub(crate) fn published_lists(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.file(REJECTS)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Removes the checkpoints of the complete output of `work`. Checkpoints of other work stay, and are named in a warning.
    pub(crate) fn clean_up(self, work: &Work<'_>) -> Result<(), StoreError> {
        if self.check().is_err() {
            // Another run took it over, and cleans up.
            return Ok(());
        }
        let rejects = self.0.file(REJECTS);
        remove_file(&rejects)?;
        remove_file(&self.crashes())?;
        remove_unfinished(&rejects);
        remove_unfinished(&UnfinishedEmbeddings::footer_file(&self.blocks()));
        let blocks = (self.blocks(), self.open_blocks(work).map(drop));
        let parts = self.parts()?.into_iter().map(|path| {
            let opened = open_part(&path, &work.provenance).map(drop);
            (path, opened)
        });
        let mut other = None;
        for (path, opened) in std::iter::once(blocks).chain(parts) {
            match opened {
                Err(StoreError::Exists { difference, .. }) => other = Some(difference),
                _ => remove_checkpoint(&path)?,
            }
        }
        let names = entries(self.0.path()).unwrap_or_default();
        let foreign = names.iter().map(name_of).find(|name| !is_own(name));
        let path = path_text(self.0.path());
        if let Some(difference) = other {
            tracing::warn!("{path}: kept: checkpoint of another run ({difference})");
        } else if let Some(name) = foreign {
            let name = Quoted(&name);
            tracing::warn!("{path}: kept: {name} in it is not of this run");
        }
        Ok(())
    }
}

/// Returns the error of a checkpoint that is damaged or gone. Other errors may pass, and their checkpoints stay.
pub(crate) fn damage(error: StoreError) -> Result<StoreError, StoreError> {
    match error {
        StoreError::Malformed { .. } | StoreError::Foreign { .. } => Ok(error),
        StoreError::Open { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Ok(error)
        }
        // No input is missing.
        StoreError::Open { path, source } => Err(StoreError::Read { path, source }),
        error => Err(error),
    }
}

/// Removes a checkpoint, and the footer that the output under construction has beside it.
pub(crate) fn remove_checkpoint(path: &Path) -> Result<(), StoreError> {
    remove_file(path)?;
    remove_file(&UnfinishedEmbeddings::footer_file(path))
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder)?.collect()
}

fn name_of(entry: &DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// Whether a run gives this name to a file of its folder, finished or not.
fn is_own(name: &str) -> bool {
    let name = strip_temporary_suffix(name).unwrap_or(name);
    let footer = UnfinishedEmbeddings::footer_file(Path::new(BLOCKS));
    is_part(name) || [LOCK, REJECTS, BLOCKS, CRASHES].contains(&name) || footer == Path::new(name)
}

/// Whether this is the name of a part.
fn is_part(name: &str) -> bool {
    let number = name.strip_prefix(PART_PREFIX);
    let number = number.and_then(|rest| rest.strip_suffix(PART_SUFFIX));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}
