//! Files that appear at their path complete, or not at all.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};
use rustix::io::Errno;

use crate::StoreError;
use crate::folder::sync_folder;
use crate::hidden_name::{MARK, NAME_BYTES, hidden_name};
use crate::input::read_byte_digest;
use crate::lock::{claim_new, is_at, remove_unheld};

/// A temporary file beside its final path.
///
/// [`finish`](Self::finish) syncs the bytes to disk and renames the file. Until then an existing file stays at the path. Dropped
/// without `finish`, the temporary file is removed.
///
/// The temporary name follows from the path, and the file is locked: one process at a time writes an output. The next run
/// replaces the temporary file of a killed one. Where locks exclude nobody, it may be that of a running process, which then ends
/// with [`StoreError::Busy`].
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use std::io::Write;
/// let path = folder.path().join("report.txt");
/// let mut file = plmkit_store::AtomicFile::create(&path).unwrap();
/// file.write_all(b"whole").unwrap();
/// assert!(!path.exists());
/// file.finish().unwrap();
/// assert_eq!(std::fs::read(&path).unwrap(), b"whole");
/// ```
#[derive(Debug)]
#[must_use]
pub struct AtomicFile {
    path: PathBuf,
    /// Empty once the file is renamed: the name may then be another writer's.
    temporary: PathBuf,
    /// Whether a file was at the path at the start.
    replaces: bool,
    /// `None` while suspended.
    writer: Option<BufWriter<File>>,
    /// The file as it was suspended.
    suspended: Option<Metadata>,
    /// Whether all written bytes are on the disk.
    synced: bool,
    /// Whether a file that is at the path may only be replaced by its own bytes.
    keeps: bool,
}

impl AtomicFile {
    /// Starts a file that will be at `path`. Its mode follows the umask. If `path` is a link to a file, the file is replaced and
    /// the link stays.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let failed = StoreError::cannot_create(path);
        let target = target(path).map_err(failed)?;
        let name = target
            .file_name()
            .ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        let temporary = target.with_file_name(hidden_name(name, MARK));
        let file = claim_new(&temporary).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => StoreError::busy(path),
            // Another user's file may have the temporary name.
            _ if temporary.symlink_metadata().is_ok() => StoreError::Create {
                path: temporary.clone(),
                source,
            },
            _ => failed(source),
        })?;
        Ok(Self {
            replaces: target.exists(),
            path: target,
            temporary,
            writer: Some(buffered(file)),
            suspended: None,
            synced: false,
            keeps: false,
        })
    }

    /// Lets a file that is at the path be replaced only by its own bytes: syncing and finishing fail if it has others.
    pub fn keeping(mut self, keeps: bool) -> Self {
        self.keeps = keeps;
        self
    }

    /// Returns the path of the finished file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the bytes so far, and returns their [`ByteDigest`](plmkit_contract::ByteDigest).
    pub(crate) fn digest(&mut self) -> Result<String, StoreError> {
        self.flush().map_err(|source| self.failed(source))?;
        self.check()?;
        read_byte_digest(&self.temporary)
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_all(bytes).map_err(|source| self.failed(source))
    }

    /// Closes the file descriptor until the next write, so that thousands of files can be unfinished at once.
    pub fn suspend(&mut self) -> Result<(), StoreError> {
        self.flush().map_err(|source| self.failed(source))?;
        if let Some(writer) = self.writer.take() {
            // The disk begins to write: the sync at the end takes less time. Without this nothing is lost.
            let _ = fadvise(writer.get_ref(), 0, None, Advice::DontNeed);
            let is_own = is_at(writer.get_ref(), &self.temporary).unwrap_or_default();
            drop(writer);
            // After the file is closed: a network file system may change its time then.
            self.suspended = self.temporary.metadata().ok().filter(|_| is_own);
        }
        Ok(())
    }

    fn resumed(&mut self) -> io::Result<&mut BufWriter<File>> {
        let writer = if let Some(writer) = self.writer.take() {
            writer
        } else {
            let file = OpenOptions::new().append(true).open(&self.temporary)?;
            let lengths = [self.suspended.as_ref(), file.metadata().ok().as_ref()]
                .map(|found| Some(found?.len()));
            if lengths[0] != lengths[1] {
                return Err(io::ErrorKind::NotFound.into());
            }
            buffered(file)
        };
        Ok(self.writer.insert(writer))
    }

    /// Publishes the file: syncs its bytes, renames it, then syncs the folder.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.sync()?;
        let temporary = self.temporary.clone();
        let file = self
            .resumed()
            .and_then(|writer| writer.get_ref().try_clone());
        let file = file.map_err(|source| self.failed(source))?;
        self.rename(&file, &temporary)?;
        self.temporary = PathBuf::new();
        self.sync_folder()
    }

    /// Syncs the bytes to the disk, so that [`finish`](Self::finish) need not. Several threads can sync a file each.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if !self.synced {
            let synced = self.resumed().and_then(|writer| {
                writer.flush()?;
                writer.get_ref().sync_all()
            });
            synced.map_err(|source| self.failed(source))?;
            if self.keeps && self.path.exists() && read_byte_digest(&self.path)? != self.digest()? {
                return Err(StoreError::exists(&self.path, "it has other content"));
            }
            self.synced = true;
        }
        Ok(())
    }

    /// Publishes `file`, which is at `path`, instead of this one: renames it, or copies it from another file system.
    pub fn finish_as(mut self, file: &File, path: &Path) -> Result<(), StoreError> {
        file.sync_all().map_err(|source| self.failed(source))?;
        match self.rename(file, path) {
            Err(StoreError::Write { source, .. })
                if source.kind() == io::ErrorKind::CrossesDevices =>
            {
                let copied = File::open(path).and_then(|mut from| {
                    let writer = self.resumed()?;
                    io::copy(&mut from, writer.get_mut())
                });
                copied.map_err(|source| self.failed(source))?;
                self.finish()
            }
            renamed => renamed.and_then(|()| self.sync_folder()),
        }
    }

    /// Renames `file`, which is at `from`, to the final path.
    fn rename(&mut self, file: &File, from: &Path) -> Result<(), StoreError> {
        // Where locks exclude nobody, another process may rename it instead of its own.
        let is_published = |path: &Path| is_at(file, path).unwrap_or_default();
        if is_published(&self.path) {
            return Ok(());
        }
        self.check()?;
        let renamed = if self.replaces {
            fs::rename(from, &self.path)
        } else {
            rename_new(from, &self.path)
        };
        if is_published(&self.path) {
            return Ok(());
        }
        renamed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => {
                StoreError::exists(&self.path, "it appeared in the meantime")
            }
            _ => self.failed(source),
        })?;
        // Some file systems number a renamed file anew.
        let lengths = [file.metadata(), self.path.metadata()].map(|found| Some(found.ok()?.len()));
        if lengths[0] == lengths[1] {
            return Ok(());
        }
        // The file was that of the other process, which gets it back.
        let _ = rename_new(&self.path, from);
        Err(StoreError::busy(&self.path))
    }

    /// Whether the temporary file is still this one.
    fn check(&mut self) -> Result<(), StoreError> {
        let resumed = self.resumed().map(drop);
        resumed.map_err(|source| self.failed(source))?;
        if self.is_at(&self.temporary) {
            return Ok(());
        }
        Err(self.failed(io::ErrorKind::NotFound.into()))
    }

    /// Whether the file at `path` is this one: as far as its length and time tell if it is suspended.
    fn is_at(&self, path: &Path) -> bool {
        if let Some(writer) = &self.writer {
            return is_at(writer.get_ref(), path).unwrap_or_default();
        }
        let own = [self.suspended.as_ref(), path.metadata().ok().as_ref()]
            .map(|found| Some((found?.len(), found?.modified().ok())));
        own[0] == own[1]
    }

    fn sync_folder(&self) -> Result<(), StoreError> {
        sync_folder_of(&self.path).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> StoreError {
        let is_taken_over = if self.temporary.exists() {
            !self.is_at(&self.temporary)
        } else {
            // The other process may have published its own.
            !self.replaces && !self.temporary.as_os_str().is_empty() && self.path.exists()
        };
        if is_taken_over {
            return StoreError::busy(&self.path);
        }
        StoreError::cannot_write(&self.path)(source)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.synced = false;
        self.resumed()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 16, file)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_folder(path.parent().unwrap_or("".as_ref()))
}

/// Removes the temporary file.
impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.is_at(&self.temporary) {
            // A rerun replaces a file that stays.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Renames to a path without a file. A file that appeared there in the meantime stays: it was not checked.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support it.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        result => Ok(result?),
    }
}

/// Returns the final path of an output at `path`, with a link followed. A device or a folder is an error.
fn target(path: &Path) -> io::Result<PathBuf> {
    let Ok(found) = path.symlink_metadata() else {
        let bytes = path.as_os_str().as_encoded_bytes();
        return if bytes.ends_with(b"/") {
            Err(io::ErrorKind::NotADirectory.into())
        } else if path.file_name().is_some_and(|name| name.len() > NAME_BYTES) {
            Err(io::ErrorKind::InvalidFilename.into())
        } else {
            Ok(path.to_owned())
        };
    };
    let (path, found) = if found.is_symlink() {
        let target = path.canonicalize()?;
        let found = target.metadata()?;
        (target, found)
    } else {
        (path.to_owned(), found)
    };
    if found.is_file() {
        Ok(path)
    } else if found.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Removes the output at `path`, if there is one, before another one is published that it does not belong to. If `path` is a link
/// to a file, the file is removed and the link stays.
pub fn remove_published(path: &Path) -> Result<(), StoreError> {
    let failed = StoreError::cannot_write(path);
    if !path.try_exists().map_err(&failed)? {
        return Ok(());
    }
    let removed = target(path).and_then(|path| {
        fs::remove_file(&path)?;
        sync_folder_of(&path)
    });
    removed.map_err(failed)
}

/// Removes the temporary file that a killed process left for `path`, unless a running process holds it.
pub fn remove_unfinished(path: &Path) {
    if let Ok(target) = target(path)
        && let Some(name) = target.file_name()
    {
        remove_unheld(&target.with_file_name(hidden_name(name, MARK)));
    }
}

#[cfg(test)]
mod tests;
