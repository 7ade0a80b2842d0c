//! Files that appear complete or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::StoreError;

const MARK: &str = ".plmkit-tmp-";

/// A file under construction, beside the path it will have.
///
/// [`finish`](Self::finish) puts the bytes on disk and renames; until then nothing is at the path, and a file
/// that was there stays. Dropped without it, the temporary file is removed.
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
pub struct AtomicFile {
    path: PathBuf,
    temporary: Temporary,
    /// `None` while suspended.
    writer: Option<BufWriter<File>>,
    written: u64,
}

impl AtomicFile {
    /// Starts a file that will be at `path`. Its mode follows the umask, as for any new file.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Create {
            path: path.to_owned(),
            source,
        };
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let name = path
            .file_name()
            .ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        let temporary = path.with_file_name(temporary_name(&name.to_string_lossy()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            temporary: Temporary(temporary),
            writer: Some(buffered(file)),
            written: 0,
        })
    }

    /// The path that the finished file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Closes the file descriptor until the next write, so that many files can wait for their end at once.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.flush()?;
        self.writer = None;
        Ok(())
    }

    fn resumed(&mut self) -> io::Result<&mut BufWriter<File>> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => buffered(OpenOptions::new().append(true).open(&self.temporary.0)?),
        };
        Ok(self.writer.insert(writer))
    }

    /// Publishes the file: its bytes are on disk, then it has its name, then the folder is on disk.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let path = self.path.clone();
        let failed = |source| StoreError::Write {
            path: path.clone(),
            source,
        };
        let writer = self.resumed().map_err(failed)?;
        writer.flush().map_err(failed)?;
        writer.get_ref().sync_all().map_err(failed)?;
        fs::rename(&self.temporary.0, &self.path).map_err(failed)?;
        let folder = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.resumed()?.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 16, file)
}

/// The file at this path is removed on drop; after the rename there is none.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // There is nobody to tell; a rerun recognises what is left.
        let _ = fs::remove_file(&self.0);
    }
}

/// A name that no other writer of this process or machine uses at this moment, of at most 255 bytes.
fn temporary_name(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let end = name.floor_char_boundary(180);
    format!(".{}{MARK}{}-{next}", &name[..end], std::process::id())
}

/// Whether `name` is the name of a file under construction, this run's or one left behind by a killed one.
pub fn is_temporary_name(name: &str) -> bool {
    name.starts_with('.') && name.contains(MARK)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use plmkit_contract::{Exit, Failure};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("folder");
        entries
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    }

    #[test]
    fn dropped_unfinished_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("a");
        fs::write(&path, "old").expect("write");
        let mut file = AtomicFile::create(&path).expect("create");
        file.write_all(b"new").expect("write");
        assert!(
            names(folder.path())
                .iter()
                .any(|name| is_temporary_name(name))
        );
        drop(file);
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_suspended_file_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("a");
        let mut file = AtomicFile::create(&path).expect("create");
        file.write_all(b"one ").expect("write");
        file.suspend().expect("suspend");
        file.write_all(b"two").expect("write");
        file.suspend().expect("suspend");
        file.finish().expect("finish");
        assert_eq!(fs::read_to_string(&path).expect("read"), "one two");
    }

    #[test]
    fn mode_follows_the_umask_as_for_any_new_file() {
        let folder = tempfile::tempdir().expect("temp folder");
        let (ours, plain) = (folder.path().join("a"), folder.path().join("b"));
        AtomicFile::create(&ours)
            .expect("create")
            .finish()
            .expect("finish");
        fs::write(&plain, "").expect("write");
        let mode = |path| fs::metadata(path).expect("metadata").permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn a_missing_folder_cannot_be_written_to() {
        let folder = tempfile::tempdir().expect("temp folder");
        let error = AtomicFile::create(&folder.path().join("no/a")).expect_err("no folder");
        assert_eq!(error.exit(), Exit::CannotCreate);
        let error = AtomicFile::create(folder.path()).expect_err("a folder");
        assert_eq!(error.exit(), Exit::CannotCreate);
    }
}
