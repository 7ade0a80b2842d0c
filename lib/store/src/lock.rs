//! Locks: one writer of an output at a time.
//!
//! Not every file system excludes a second run: some have no locks, and those of others end at a machine. The later run then takes
//! the output over, and the earlier one finds that a file with its name is not its own.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Once;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

use plmkit_kit::path_text;

use crate::StoreError;
use crate::input::remove_if_exists;

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
    output: PathBuf,
    /// The content of the lock file: the boot of this machine, this process, and the time. Empty if the disk is full.
    owner: String,
    /// Whether another run may be at work.
    is_shared: bool,
    _file: File,
}

impl Lock {
    /// Locks `output` with the lock file `path`. [`StoreError::Busy`] if another process holds it.
    pub fn acquire(path: &Path, output: &Path) -> Result<Self, StoreError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (boot, left) = (boot.trim(), owner_in(path));
        let file = claim_new(path).map_err(cannot_lock(output))?;
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let owner = format!("{boot} {} {}", process::id(), time.as_nanos());
        let owner = match file.write_all_at(owner.as_bytes(), 0) {
            Ok(()) => owner,
            Err(_) => String::new(),
        };
        Ok(Self {
            path: path.to_owned(),
            output: output.to_owned(),
            owner,
            is_shared: !excludes(&file, output) || left.is_ok_and(|left| !left.starts_with(boot)),
            _file: file,
        })
    }

    /// Whether another run may still write the output: the locks exclude nobody, or the lock file was left on another machine.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether the output is still this run's: [`StoreError::Busy`] if another run has taken it over.
    pub fn check(&self) -> Result<(), StoreError> {
        match owner_in(&self.path) {
            Ok(owner) if owner == self.owner => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::cannot_create(&self.output)(error));
            }
            _ => {}
        }
        let folder = self.path.parent().unwrap_or(&self.path);
        if folder.exists() || self.output.exists() {
            return Err(StoreError::busy(&self.output));
        }
        let why = io::Error::other("the folder was removed while the run was at work");
        Err(StoreError::cannot_write(folder)(why))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.check().is_ok() {
            // If it cannot be removed, the next run locks it again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads the owner in the lock file at `path`. Nothing but a file is read.
fn owner_in(path: &Path) -> io::Result<String> {
    let mut owner = [0; 128];
    let length = read_write().open(path)?.read_at(&mut owner, 0)?;
    Ok(String::from_utf8_lossy(&owner[..length]).into_owned())
}

/// Returns a function that makes the error of an output that cannot be locked: [`StoreError::Busy`] if another process holds the lock.
fn cannot_lock(output: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| match source.kind() {
        io::ErrorKind::WouldBlock => StoreError::busy(output),
        _ => StoreError::cannot_create(output)(source),
    }
}

/// Locks `file`, which was opened at `path`, until it is closed. Returns false if the file is no longer at `path`: its last
/// owner removed it. [`StoreError::Busy`] if another process holds the lock. A file system without locks is no error.
pub fn lock_open(file: &File, path: &Path) -> Result<bool, StoreError> {
    let failed = cannot_lock(path);
    try_lock(file).map_err(&failed)?;
    excludes(file, path);
    // `file` may have been opened through a link.
    match path.canonicalize() {
        Ok(path) => is_at(file, &path).map_err(failed),
        Err(_) => Ok(false),
    }
}

/// Creates the file at `path` and locks it. Replaces a file that nobody holds: a killed run's file has the mode and owner of
/// that run. [`WouldBlock`](io::ErrorKind::WouldBlock) if another process holds the lock.
pub(crate) fn claim_new(path: &Path) -> io::Result<File> {
    loop {
        match read_write().create_new(true).open(path) {
            Ok(file) => match lock(file, path)? {
                Some(file) => return Ok(file),
                None => continue,
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if let Some(_held) = claim_existing(path)? {
            // Where locks do not exclude, another run may have removed it.
            remove_if_exists(path)?;
        }
    }
}

/// Removes the file at `path` unless a process holds it. Ignores errors.
pub(crate) fn remove_unheld(path: &Path) {
    if let Ok(Some(_held)) = claim_existing(path) {
        let _ = fs::remove_file(path);
    }
}

/// Locks the file at `path`; `None` if there is none.
fn claim_existing(path: &Path) -> io::Result<Option<File>> {
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
fn lock(file: File, path: &Path) -> io::Result<Option<File>> {
    try_lock(&file)?;
    Ok(is_at(&file, path)?.then_some(file))
}

/// Locks `file`; [`WouldBlock`](io::ErrorKind::WouldBlock) if another process holds the lock. A file system without locks, like some
/// network file systems, refuses nobody.
fn try_lock(file: &File) -> io::Result<()> {
    let unsupported = [Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOLCK];
    let mut tried = file.try_lock();
    for _ in 0..TRIES {
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            break;
        }
        sleep(INTERVAL);
        tried = file.try_lock();
    }
    let has_no_locks =
        |error: &io::Error| Errno::from_io_error(error).is_some_and(|no| unsupported.contains(&no));
    match tried.map_err(io::Error::from) {
        Err(error) if has_no_locks(&error) => Ok(()),
        tried => tried,
    }
}

/// Whether the lock on `file` excludes others: locking the file a second time must fail. Warns once if it does not.
fn excludes(file: &File, output: &Path) -> bool {
    static WARNED: Once = Once::new();
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = OpenOptions::new().read(true).write(true).open(again);
    let is_locked_again =
        again.is_ok_and(|file| !matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    if is_locked_again {
        WARNED.call_once(|| {
            tracing::warn!(
                "{}: the locks of this file system exclude no second run: it would take the output over and end this one",
                path_text(output)
            );
        });
    }
    !is_locked_again
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

    use plmkit_kit::{Exit, Failure};

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
