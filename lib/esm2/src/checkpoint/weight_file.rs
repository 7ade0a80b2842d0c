//! A memory-mapped weight file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};
use plmkit_kit::{Exit, check_fetched, check_regular};

use crate::error::EsmError;

/// A weight file in memory.
#[derive(Debug)]
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    /// Tensors that are in the file according to an index.
    pub(super) indexed: Vec<String>,
    bytes: Mmap,
    file: File,
    pub(super) opened: Stamp,
}

/// What tells a file from others, and from itself with other bytes.
pub(super) type Stamp = [i64; 7];

/// Returns device, inode, size, and times of writing and of change: any write changes one of them.
pub(super) fn stamp(found: &fs::Metadata) -> Stamp {
    [
        found.dev().cast_signed(),
        found.ino().cast_signed(),
        found.size().cast_signed(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ]
}

/// Opens a regular file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    check_regular(&path.metadata()?)?;
    let file = File::open(path)?;
    check_fetched(&file)?;
    Ok(file)
}

impl WeightFile {
    #[allow(unsafe_code)]
    pub(super) fn open(path: PathBuf, indexed: Vec<String>) -> Result<Self, EsmError> {
        let mapped = open(&path).and_then(|file| {
            let opened = stamp(&file.metadata()?);
            // SAFETY: the bytes are only read, as bytes: they are checked, hashed and copied, and no value of another
            // type is borrowed from them. A file that another process changes meanwhile can give wrong bytes, and one
            // that it truncates ends this process with SIGBUS. Both need a write to a checkpoint that is being loaded.
            // The map is dropped after loading, or with a model that reads its layers when it computes them.
            Ok((unsafe { Mmap::map(&file)? }, file, opened))
        });
        let (bytes, file, opened) = mapped.map_err(|error| EsmError::cannot_open(&path, &error))?;
        Ok(Self {
            path,
            indexed,
            bytes,
            file,
            opened,
        })
    }

    /// Checks that the file is still the one that was opened: otherwise the weights may be of two models.
    pub(super) fn check_unchanged(&self) -> Result<(), EsmError> {
        match self.file.metadata() {
            Ok(now) if stamp(&now) == self.opened => Ok(()),
            _ => Err(EsmError::of_file(
                Exit::Transient,
                &self.path,
                "changed while it was read",
            )),
        }
    }

    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Releases the memory of some bytes of the file. A later access reads them from the file again.
    ///
    /// The system can take such pages back at any time, but counts them as memory of this process.
    #[allow(unsafe_code)]
    pub(super) fn release(&self, start: usize, length: usize) {
        if length == 0 {
            return;
        }
        // SAFETY: the pages show a file and were never written, so that reading them again gives the same bytes. See `open`
        // for files that change. If the system refuses, nothing has happened.
        let _ = unsafe {
            (self.bytes).unchecked_advise_range(UncheckedAdvice::DontNeed, start, length)
        };
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_file_that_was_written_to_after_it_was_opened_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        fs::write(&path, b"weights").unwrap();
        let file = WeightFile::open(path.clone(), Vec::new()).unwrap();
        assert_eq!(&file.bytes[..], b"weights");
        assert!(file.check_unchanged().is_ok());
        std::thread::sleep(std::time::Duration::from_millis(20)); // the clock of the file system may be coarse
        fs::write(&path, b"changed").unwrap();
        let error = file.check_unchanged().unwrap_err();
        assert!(error.to_string().ends_with("changed while it was read"));
        let exit = plmkit_kit::Failure::exit(&error);
        assert_eq!(exit, plmkit_kit::Exit::Transient);
    }

    /// KiB of a mapped file that are in this process's memory.
    #[cfg(target_os = "linux")]
    fn resident(path: &Path) -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines();
        let is_mapped = lines.any(|line| line.ends_with(path.to_str().unwrap()));
        assert!(is_mapped);
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn released_bytes_leave_memory_and_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("bytes");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = WeightFile::open(path.clone(), Vec::new()).unwrap();
        let sum = || file.bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(sum(), 7 << 20);
        assert_eq!(resident(&path), 1 << 10);
        // A page is released even if only part of it is asked for.
        file.release((1 << 19) + 1, (1 << 19) - 1);
        assert_eq!(resident(&path), 1 << 9);
        file.release(0, 1 << 20);
        assert_eq!(resident(&path), 0);
        assert_eq!(sum(), 7 << 20);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert!(open(folder.path()).is_err());
        let device = open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(device.to_string(), "not a regular file");
        let absent = open(&folder.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let empty = folder.path().join("empty");
        fs::write(&empty, b"").unwrap();
        let empty = WeightFile::open(empty, Vec::new()).unwrap();
        assert!(empty.bytes.is_empty());
    }
}
