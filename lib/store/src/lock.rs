//! One writer at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use plmkit_contract::path_text;

use crate::StoreError;

/// An exclusive claim on an output of more than one file, for as long as this value lives.
///
/// It is a lock of the operating system on a file, so it ends with the process, however that ends: what a killed
/// run left behind blocks nobody.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: Option<File>,
}

impl Lock {
    /// Claims `output` by the lock file `path`, or says that another process has it.
    pub fn acquire(path: &Path, output: &Path) -> Result<Self, StoreError> {
        let file = match claim(path).map_err(StoreError::cannot_create(output))? {
            Claim::Held(file) => Some(file),
            Claim::Busy => {
                return Err(StoreError::Busy {
                    path: output.to_owned(),
                });
            }
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
        // While the lock is held, so that it is not another's file. One that stays behind is claimed again.
        let _ = fs::remove_file(&self.path);
    }
}

/// How an attempt to claim a path ended.
pub(crate) enum Claim {
    /// The file, open for reading and writing, with whatever it held.
    Held(File),
    /// Another process has it.
    Busy,
    /// The file system has no locks, as some network file systems.
    Unsupported,
}

/// Locks `file`, which was opened at `path`, for as long as it is open; [`StoreError::Busy`] where another process has it.
/// False where `path` is not its name any more, since whoever had it removed it. Without locks it is not locked.
pub fn lock_open(file: &File, path: &Path) -> Result<bool, StoreError> {
    let failed = StoreError::cannot_create(path);
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let path = path.to_owned();
            return Err(StoreError::Busy { path });
        }
        Err(TryLockError::Error(error)) if !is_unsupported(&error) => return Err(failed(error)),
        _ => {}
    }
    // Opening follows links, so that a link to the file is its name, too.
    match path.canonicalize() {
        Ok(path) => is_at(file, &path).map_err(failed),
        Err(_) => Ok(false),
    }
}

/// Opens the file at `path`, or makes one, and locks it.
pub(crate) fn claim(path: &Path) -> io::Result<Claim> {
    loop {
        let file = read_write().create(true).truncate(false).open(path)?;
        if let Some(claim) = lock(file, path)? {
            return Ok(claim);
        }
    }
}

/// Makes the file at `path` and locks it. One that nobody holds is replaced: a killed run's file has that run's mode
/// and owner, too. Where there are no locks, nothing is left at `path`.
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

/// Removes the file at `path` unless somebody holds it. There is nobody to tell where that fails.
pub(crate) fn remove_unheld(path: &Path) {
    if let Ok(Some(Claim::Held(_held))) = claim_existing(path) {
        let _ = fs::remove_file(path);
    }
}

/// `None` where there is no file any more.
fn claim_existing(path: &Path) -> io::Result<Option<Claim>> {
    match read_write().open(path) {
        Ok(file) => lock(file, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    // A link that somebody laid at a predictable name must not lead to another file.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flags);
    options
}

/// Locks `file`; `None` where `path` is not its name any more, since whoever held it removed or renamed it.
fn lock(file: File, path: &Path) -> io::Result<Option<Claim>> {
    match file.try_lock() {
        Ok(()) => Ok(is_at(&file, path)?.then_some(Claim::Held(file))),
        Err(TryLockError::WouldBlock) => Ok(Some(Claim::Busy)),
        Err(TryLockError::Error(error)) if is_unsupported(&error) => Ok(Some(Claim::Unsupported)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether `path` is still the name of `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOLCK];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Exit, Failure};

    use super::*;

    #[test]
    fn a_claim_excludes_others_until_it_is_dropped() {
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
    fn a_lock_file_that_nobody_holds_blocks_nobody() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        fs::write(&path, "left behind").expect("write");
        Lock::acquire(&path, &path).expect("claimed");
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        std::os::unix::fs::symlink(folder.path().join("victim"), &path).expect("link");
        assert!(Lock::acquire(&path, &path).is_err());
        assert!(!folder.path().join("victim").exists());
    }

    #[test]
    fn of_many_threads_one_has_it() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("lock");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut times = 0;
                    while times < 50 {
                        if let Ok(_held) = Lock::acquire(&path, &path) {
                            let before = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            assert_eq!(before, 0);
                            inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            times += 1;
                        }
                    }
                });
            }
        });
    }
}
