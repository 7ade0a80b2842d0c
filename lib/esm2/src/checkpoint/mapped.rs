//! Weight files as memory maps.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};
use plmkit_contract::{check_fetched, check_regular};

/// Opens a regular file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    check_regular(&path.metadata()?)?;
    let file = File::open(path)?;
    check_fetched(&file)?;
    Ok(file)
}

/// Maps a file read-only.
#[allow(unsafe_code)]
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the bytes are only ever read, as bytes: they are checked, hashed and copied out, and no value of
    // another type is ever borrowed from them. A file that another process changes meanwhile can give wrong bytes,
    // and one that it cuts off ends this process with SIGBUS; both need a write to a checkpoint that is being loaded,
    // and the map is gone once loading is done, or with a model whose layers are read when they are computed.
    unsafe { Mmap::map(file) }
}

/// Lets go of the memory that shows `bytes` of the map; it is read from the file again where it is needed again.
///
/// Pages of a file are the system's to take back at any time, and yet they count as this process's memory.
#[allow(unsafe_code)]
pub(super) fn forget(map: &Mmap, bytes: &[u8]) {
    let Some(offset) = bytes.as_ptr().addr().checked_sub(map.as_ptr().addr()) else {
        return;
    };
    if bytes.is_empty() || offset + bytes.len() > map.len() {
        return;
    }
    // SAFETY: what shows a file, and was never written, is the same after it was read again; see `map` for files that
    // change. Where the system refuses, nothing has happened.
    let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &Path) -> io::Result<Mmap> {
        map(&open(path)?)
    }

    #[test]
    fn a_map_shows_the_bytes_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        std::fs::write(&path, b"weights").unwrap();
        assert_eq!(&mapped(&path).unwrap()[..], b"weights");
    }

    /// KiB of a mapped file that are in this process's memory.
    #[cfg(target_os = "linux")]
    fn resident(path: &Path) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines();
        lines
            .find(|line| line.ends_with(path.to_str().unwrap()))
            .expect("it is mapped");
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_read_does_not_stay_in_memory_and_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("bytes");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let map = mapped(&path).unwrap();
        let sum = || map.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(sum(), 7 << 20);
        assert_eq!(resident(&path), 1 << 10);
        // A page of which some is let go of goes.
        forget(&map, &map[(1 << 19) + 1..]);
        assert_eq!(resident(&path), 1 << 9);
        forget(&map, &map[..]);
        forget(&map, &[7; 16]);
        assert_eq!(resident(&path), 0);
        assert_eq!(sum(), 7 << 20);
    }

    #[test]
    fn a_folder_or_an_absent_file_is_an_error_and_an_empty_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(mapped(folder.path()).is_err());
        let device = mapped(Path::new("/dev/null")).unwrap_err();
        assert_eq!(device.to_string(), "not a regular file");
        assert_eq!(
            mapped(&folder.path().join("absent")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let empty = folder.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        assert!(mapped(&empty).unwrap().is_empty());
    }
}
