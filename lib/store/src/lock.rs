//! Locks: one writer of an output at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use plmkit_contract::path_text;

use crate::StoreError;

/// How often a held lock is tried again: what a killed process was starting holds it until it is another program.
const TRIES: u32 = 20;

/// The time between two tries.
const INTERVAL: Duration = Duration::from_millis(10);

/// An exclusive lock on an output that has several files. It is held until this value is dropped.
///
/// The operating system releases the lock when the process ends: the lock file of a killed run blocks no other run.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: Option<File>,
}

impl Lock {
    /// Locks a folder, by a file in it.
    pub fn of_folder(folder: &Path) -> Result<Self, StoreError> {
        Self::acquire(&folder.join(".plmkit-lock"), folder)
    }

    /// Locks `output` with the lock file `path`. [`StoreError::Busy`] if another process holds it.
    pub fn acquire(path: &Path, output: &Path) -> Result<Self, StoreError> {
        let file = match claim_new(path).map_err(StoreError::cannot_create(output))? {
            Claim::Held(file) => Some(file),
            Claim::Busy => return Err(StoreError::busy(output)),
            Claim::Unsupported => {
                tracing::warn!(
                    "{}: this file system has no locks: nothing stops a second run from writing the same output",
                    path_text(output)
                );
                None
            }
        };
        Ok(Self {
            path: path.to_owned(),
            _file: file,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours. If it cannot be removed, the next run locks it again.
        let _ = fs::remove_file(&self.path);
    }
}

/// The result of an attempt to lock the file at a path.
pub(crate) enum Claim {
    /// The locked file, open for reading and writing.
    Held(File),
    /// Another process holds the lock.
    Busy,
    /// The file system has no locks, like some network file systems.
    Unsupported,
}

/// Locks `file`, which was opened at `path`, until it is closed. Returns false if the file is no longer at `path`: its last
/// owner removed it. [`StoreError::Busy`] if another process holds the lock. A file system without locks is no error.
pub fn lock_open(file: &File, path: &Path) -> Result<bool, StoreError> {
    let failed = StoreError::cannot_create(path);
    if let Some(Claim::Busy) = try_lock(file).map_err(failed)? {
        return Err(StoreError::busy(path));
    }
    // `file` may have been opened through a link.
    match path.canonicalize() {
        Ok(path) => is_at(file, &path).map_err(failed),
        Err(_) => Ok(false),
    }
}

/// Creates the file at `path` and locks it. Replaces a file that nobody holds: a killed run's file has the mode and owner of
/// that run. Without locks, no file is left at `path`.
pub(crate) fn claim_new(path: &Path) -> io::Result<Claim> {
    loop {
        match read_write().create_new(true).open(path) {
            Ok(file) => match lock(file, path)? {
                Some(Claim::Unsupported) => {
                    fs::remove_file(path)?;
                    return Ok(Claim::Unsupported);
                }
                Some(claim) => return Ok(claim),
                None => continue,
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match claim_existing(path)? {
            Some(Claim::Held(_held)) => fs::remove_file(path)?,
            Some(claim) => return Ok(claim),
            None => {}
        }
    }
}

/// Removes the file at `path` unless a process holds it. Ignores errors.
pub(crate) fn remove_unheld(path: &Path) {
    if let Ok(Some(Claim::Held(_held))) = claim_existing(path) {
        let _ = fs::remove_file(path);
    }
}

/// Locks the file at `path`; `None` if there is none.
fn claim_existing(path: &Path) -> io::Result<Option<Claim>> {
    match read_write().open(path) {
        Ok(file) => lock(file, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    // Names are predictable: a symbolic link planted there must not be followed.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flags);
    options
}

/// Locks `file`; `None` if it is no longer at `path`, because its last owner removed or renamed it.
fn lock(file: File, path: &Path) -> io::Result<Option<Claim>> {
    match try_lock(&file)? {
        None => Ok(is_at(&file, path)?.then_some(Claim::Held(file))),
        refused => Ok(refused),
    }
}

/// Locks `file`; returns `None` on success, and otherwise why it is not locked.
fn try_lock(file: &File) -> io::Result<Option<Claim>> {
    let unsupported = [Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOLCK];
    let mut tried = file.try_lock();
    for _ in 0..TRIES {
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            break;
        }
        sleep(INTERVAL);
        tried = file.try_lock();
    }
    match tried {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(Claim::Busy)),
        Err(TryLockError::Error(error)) => match Errno::from_io_error(&error) {
            Some(errno) if unsupported.contains(&errno) => Ok(Some(Claim::Unsupported)),
            _ => Err(error),
        },
    }
}

/// Whether `file` is at `path`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match path.symlink_metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use plmkit_contract::{Exit, Failure};

    use super::*;

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        let output = folder.path().join("output");
        let held = Lock::acquire(&path, &output).expect("first");
        let error = Lock::acquire(&path, &output).expect_err("second");
        assert_eq!(error.exit(), Exit::Transient);
        assert!(error.to_string().contains("output: "), "{error}");
        drop(held);
        assert!(!path.exists());
        Lock::acquire(&path, &output).expect("third");
    }

    #[test]
    fn an_unheld_lock_file_is_no_lock_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        fs::write(&path, "left behind").expect("write");
        drop(Lock::acquire(&path, &path).expect("unheld"));
        std::os::unix::fs::symlink(folder.path().join("victim"), &path).expect("link");
        assert!(Lock::acquire(&path, &path).is_err());
        assert!(!folder.path().join("victim").exists());
    }

    #[test]
    fn one_of_many_threads_holds_it() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut times = 0;
                    while times < 50 {
                        if let Ok(_held) = Lock::acquire(&path, &path) {
                            let before = inside.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            times += 1;
                        }
                    }
                });
            }
        });
    }
}
