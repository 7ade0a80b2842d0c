//! The folder, beside an output or in another place, in which a run keeps what it has finished, until the output is complete.

use std::fs::{self, DirEntry};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plmkit_contract::{EmbeddingLayout, Provenance, Quoted, path_text};
use plmkit_store::{
    AtomicFile, Lock, StoreError, UnfinishedEmbeddings, hidden_name, remove_unfinished,
    under_construction,
};

use super::part::{Opened, Part};
use super::record::take_blocks;
use crate::inputs::RunInputs;
use crate::{EngineError, RunConfig};

const MARK: &str = ".plmkit-run";
const LOCK: &str = "lock";
const PREFIX: &str = "part-";
const SUFFIX: &str = ".parquet";
/// The output under construction.
const BLOCKS: &str = "part-blocks.parquet";
/// Holds the digest of each list of rejects that was about to get its name, a line each.
const REJECTS: &str = "rejects";

/// The folder `.NAME.plmkit-run` of an output `NAME`, and the only claim on it.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Taken out on drop: the folder can be removed only after the lock file.
    lock: Option<Lock>,
}

impl RunFolder {
    /// Claims the output, or says that another run is at work on it. The folder is beside it or in `within`, which is made if
    /// there is none.
    pub(crate) fn claim(out: &Path, within: Option<&Path>) -> Result<Self, StoreError> {
        let name = hidden_name(out.file_name().unwrap_or_default(), MARK);
        let cannot_create = |path: &Path, source| StoreError::Create {
            path: path.to_owned(),
            source,
        };
        let path = match within {
            None => out.with_file_name(name),
            Some(within) => {
                fs::create_dir_all(within).map_err(|source| cannot_create(within, source))?;
                within.join(name)
            }
        };
        loop {
            match fs::create_dir(&path) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(cannot_create(within.unwrap_or(out), source));
                }
                _ => {}
            }
            // A link would lead to files of others.
            if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                return Err(cannot_create(&path, io::ErrorKind::NotADirectory.into()));
            }
            if let Some(in_the_way) = entries(&path)
                .unwrap_or_default()
                .iter()
                .find(|entry| is_own(&name_of(entry)) && !is_file(entry))
            {
                let why =
                    io::Error::other("expected a file of a run, found something else; remove it");
                return Err(cannot_create(&in_the_way.path(), why));
            }
            match Lock::acquire(&path.join(LOCK), out) {
                // The run that had it ended in the meantime and took the folder along.
                Err(StoreError::Create { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(StoreError::Create { source, .. }) if within.is_some() => {
                    return Err(cannot_create(&path, source));
                }
                lock => {
                    return Ok(Self {
                        lock: Some(lock?),
                        path,
                    });
                }
            }
        }
    }

    /// The same error, unless a file cannot be written because somebody removed this folder.
    pub(crate) fn explain(&self, error: EngineError) -> EngineError {
        let of_files = matches!(
            error,
            EngineError::Store(
                StoreError::Create { .. } | StoreError::Write { .. } | StoreError::Busy { .. }
            )
        );
        if of_files && !self.path.exists() {
            EngineError::Store(StoreError::Write {
                path: self.path.clone(),
                source: io::Error::other("the folder was removed while the run was at work"),
            })
        } else {
            error
        }
    }

    /// Where the part whose first batch is `first` goes.
    pub(crate) fn part(&self, first: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{first:08}{SUFFIX}"))
    }

    /// Where the output is until it is complete.
    pub(crate) fn blocks(&self) -> PathBuf {
        self.path.join(BLOCKS)
    }

    /// What messages name where that cannot be written.
    pub(crate) fn named(&self, config: &RunConfig) -> PathBuf {
        match config.checkpoint_dir {
            None => config.out.clone(),
            Some(_) => self.blocks(),
        }
    }

    /// The output under construction with its provenance, if anything of it is on record.
    pub(crate) fn open_blocks(
        &self,
        config: &RunConfig,
        layout: &EmbeddingLayout,
    ) -> Result<Option<(UnfinishedEmbeddings, Provenance)>, StoreError> {
        let path = self.blocks();
        if !path.exists() {
            return Ok(None);
        }
        UnfinishedEmbeddings::open(&path, &self.named(config), layout)
    }

    /// How the work of the blocks differs from `provenance`, where they are those of other work.
    pub(crate) fn other_blocks(
        &self,
        provenance: &Provenance,
        layout: &EmbeddingLayout,
    ) -> Option<String> {
        let path = self.blocks();
        let (_, mut found) = UnfinishedEmbeddings::open(&path, &path, layout).ok()??;
        take_blocks(&mut found);
        found.difference(provenance)
    }

    /// The error that the folder is that of other work.
    pub(crate) fn other_work(&self, difference: &str) -> StoreError {
        StoreError::Exists {
            path: self.path.clone(),
            difference: format!("an unfinished run of which {difference}"),
        }
    }

    /// Removes the blocks.
    pub(crate) fn remove_blocks(&self) -> Result<(), StoreError> {
        remove_file(&self.blocks())?;
        remove_file(&UnfinishedEmbeddings::record_of(&self.blocks()))
    }

    /// The parts that an earlier run of the same work left, rising and apart, from the batch `first` on. Those of other work are an error or,
    /// with `force`, the second result: what this run replaces. What is damaged is removed.
    pub(crate) fn parts(
        &self,
        provenance: &Provenance,
        (inputs, first): (&RunInputs, u64),
        force: bool,
    ) -> Result<(Vec<Part>, Vec<PathBuf>), StoreError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut replaced = Vec::new();
        for name in self.names()? {
            let path = self.path.join(&name);
            if under_construction(&name).is_some() {
                remove_file(&path)?;
                continue;
            }
            let end = parts.last().map_or(first, |part| part.batches.end);
            match Part::open(&path, provenance) {
                // Killed between the record of a block and the removal of its rows.
                Ok(Opened::Same(part)) if part.batches.end <= first => remove_file(&path)?,
                Ok(Opened::Same(part)) if part.deserves_another_try() => {
                    tracing::warn!(
                        "{}: has sequences for which memory ran out or workers were lost; it is computed again",
                        path_text(&path)
                    );
                    remove_file(&path)?;
                }
                Ok(Opened::Same(part))
                    if part.batches.start >= end
                        && part.batches.end <= inputs.total.batches
                        && inputs.is_whole(&part.batches) =>
                {
                    parts.push(part);
                }
                Ok(Opened::Other(difference)) if !force => {
                    return Err(self.other_work(&difference));
                }
                Ok(Opened::Same(_)) => {
                    tracing::warn!(
                        "{}: overlaps another part, or cuts a protein; it is computed again",
                        path_text(&path)
                    );
                    remove_file(&path)?;
                }
                Ok(Opened::Other(_)) => replaced.push(path),
                Err(error) => {
                    tracing::warn!("{error}; it is computed again");
                    remove_file(&path)?;
                }
            }
        }
        Ok((parts, replaced))
    }

    /// The names of parts in the folder, finished or not, sorted. Files of others are not looked at.
    fn names(&self) -> Result<Vec<String>, StoreError> {
        let entries = entries(&self.path).map_err(|source| StoreError::Read {
            path: self.path.clone(),
            source,
        })?;
        let mut names: Vec<String> = entries
            .iter()
            .filter(|entry| is_file(entry))
            .map(name_of)
            .filter(|name| is_part(under_construction(name).unwrap_or(name)))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Keeps the digest of the list of rejects, before the list has its name.
    pub(crate) fn announce(&self, rejects: &str) -> Result<(), StoreError> {
        let path = self.path.join(REJECTS);
        // One before may have it now.
        let mut all = self.announced();
        all.push(rejects.to_owned());
        let mut file = AtomicFile::create(&path)?;
        let written = file.write_all(all.join("\n").as_bytes());
        written.map_err(|source| StoreError::Write { path, source })?;
        file.finish()
    }

    /// The digests that killed runs kept.
    pub(crate) fn announced(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path.join(REJECTS)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Removes what belongs to the output `provenance`, which is complete. Parts of other work stay for the run that
    /// goes on with it.
    pub(crate) fn clear(
        self,
        provenance: &Provenance,
        layout: &EmbeddingLayout,
    ) -> Result<(), StoreError> {
        let rejects = self.path.join(REJECTS);
        remove_file(&rejects)?;
        remove_unfinished(&rejects);
        remove_unfinished(&UnfinishedEmbeddings::record_of(&self.blocks()));
        let mut other = self.other_blocks(provenance, layout);
        if other.is_none() {
            self.remove_blocks()?;
        }
        for name in self.names()? {
            let path = self.path.join(&name);
            match Part::open(&path, provenance) {
                Ok(Opened::Other(difference)) => other = Some(difference),
                _ => remove_file(&path)?,
            }
        }
        let names = entries(&self.path).unwrap_or_default();
        let foreign = names.iter().map(name_of).find(|name| !is_own(name));
        if let Some(difference) = other {
            tracing::warn!(
                "{}: left alone: an unfinished run of which {difference}",
                path_text(&self.path)
            );
        } else if let Some(name) = foreign {
            tracing::warn!(
                "{}: left alone: {} in it is not of this run",
                path_text(&self.path),
                Quoted(&name)
            );
        }
        Ok(())
    }
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
    let name = under_construction(name).unwrap_or(name);
    let record = UnfinishedEmbeddings::record_of(Path::new(BLOCKS));
    is_part(name) || [LOCK, REJECTS, BLOCKS].contains(&name) || record == Path::new(name)
}

/// Whether a file of this name is a part.
fn is_part(name: &str) -> bool {
    let number = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        self.lock = None;
        // One with parts in it is not empty and stays.
        let _ = fs::remove_dir(&self.path);
    }
}

pub(crate) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
