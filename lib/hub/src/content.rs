//! Checking the files of the cache against the hashes in their names.
//!
//! The name of a large file is its SHA-256. The name of a small one is that of git: the SHA-1 of the word `blob`, the size and the
//! bytes.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plmkit_kit::{Exit, Fault, Stop, check_regular};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

use crate::HubError;
use crate::id::is_commit;

/// Whether the name of a file is a hash of its content.
pub(crate) fn is_hash(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && is_commit(name)
}

/// Computes the hash of a file that `name` should be, and returns its kind and value; `None` if `name` is no known kind of hash.
///
/// Calls `check_stop` now and then, and ends with [`io::ErrorKind::Interrupted`] if it returns false.
pub(crate) fn hash_like(
    name: &str,
    path: &Path,
    check_stop: &dyn Fn() -> bool,
) -> io::Result<Option<(&'static str, String)>> {
    let mut file = open(path)?;
    if !is_hash(name) {
        return Ok(None);
    }
    if name.len() == 64 {
        let mut hasher = Sha256::new();
        read_all(&mut file, check_stop, |bytes| hasher.update(bytes))?;
        return Ok(Some(("SHA-256", hex(&hasher.finalize()))));
    }
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", file.metadata()?.len()));
    read_all(&mut file, check_stop, |bytes| hasher.update(bytes))?;
    Ok(Some(("git SHA-1", hex(&hasher.finalize()))))
}

/// Opens a regular file: any other could be read without an end.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    check_regular(&path.metadata()?)?;
    File::open(path)
}

/// Returns the path of a file that can be opened to write, absent or regular: a pipe would wait for a reader.
pub(crate) fn writable(path: &Path) -> io::Result<&Path> {
    let found = path.metadata();
    found.map_or(Ok(()), |found| check_regular(&found))?;
    Ok(path)
}

fn read_all(
    file: &mut File,
    check_stop: &dyn Fn() -> bool,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => take(&buffer[..count]),
        }
        if !check_stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the list of large files of the model in the folder `model` of a cache that were hashed before, so that only the first run
/// with them takes the time.
///
/// Each line identifies a file by name, size, modification time and inode. If the list cannot be written, files are hashed each time.
pub(crate) fn verified_list(cache: &Path, model: &Path) -> PathBuf {
    let name = model.file_name().unwrap_or_default();
    cache.join(".locks").join(name).join("plmkit-verified")
}

/// Checks a file of a snapshot, if it is a link to a blob that is not on the list. Caches on some file systems have plain files.
pub(crate) fn check(list: &Path, file: &Path, stop: &Stop) -> Result<(), HubError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::Interrupted => HubError::Stopped,
        _ => HubError::cannot_read(file, &source),
    };
    let Ok(blob) = fs::read_link(file) else {
        return Ok(());
    };
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    let line = line(&name, file).map_err(failed)?;
    let known = open(list).and_then(io::read_to_string);
    let known = known.unwrap_or_default();
    if known.lines().any(|known| known == line) {
        return Ok(());
    }
    match hash_like(&name, file, &|| !stop.requested()).map_err(failed)? {
        Some((hash, found)) if !found.eq_ignore_ascii_case(&name) => {
            let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
            let what = format_args!(
                "damaged: expected {hash} as in its name, found {found}; remove it, and --download fetches it again"
            );
            Err(Fault::of_path(Exit::Data, &path, what).into())
        }
        _ => {
            note(list, &name, file);
            Ok(())
        }
    }
}

/// Adds a blob that was just hashed to the list, if it is large.
pub(crate) fn note(list: &Path, name: &str, blob: &Path) {
    if name.len() != 64 {
        return;
    }
    // Without the list, the file is hashed again.
    let _ = line(name, blob).and_then(|line| {
        list.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut options = OpenOptions::new();
        let mut list = options.create(true).append(true).open(writable(list)?)?;
        list.write_all(format!("{line}\n").as_bytes())
    });
}

/// Makes the line of a file.
fn line(name: &str, file: &Path) -> io::Result<String> {
    let found = file.metadata()?;
    Ok(format!(
        "{name} {} {}.{:09} {}",
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
        found.ino()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The SHA-256 of `hello` and a newline.
    const HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hello");
        fs::write(&file, "hello\n").unwrap();
        let like = |length| hash_like(&"0".repeat(length), &file, &|| true).unwrap();
        // git hash-object, sha256sum
        let (git, sha) = (like(40).unwrap(), like(64).unwrap());
        assert_eq!(git.0, "git SHA-1");
        assert_eq!(git.1, "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(sha.1, HELLO);
        assert_eq!(like(32), None);
        let stopped = hash_like(&"0".repeat(64), &file, &|| false).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_large_file_is_hashed_once_and_again_when_it_changed() {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("models--some--model");
        let name = HELLO;
        let (blob, file) = (model.join(name), model.join("model.safetensors"));
        fs::create_dir(&model).unwrap();
        fs::write(&blob, "hello\n").unwrap();
        symlink(name, &file).unwrap();
        let list = verified_list(cache.path(), &model);
        let name = ".locks/models--some--model/plmkit-verified";
        assert_eq!(list, cache.path().join(name));
        let check = || check(&list, &file, &Stop::default());
        for _ in 0..2 {
            check().unwrap();
            assert_eq!(fs::read_to_string(&list).unwrap().lines().count(), 1);
        }
        fs::write(&blob, "hellO\n").unwrap();
        let error = check().unwrap_err().to_string();
        assert!(
            error.contains("damaged: expected SHA-256 as in its name"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&list).unwrap().lines().count(), 1);
    }
}
