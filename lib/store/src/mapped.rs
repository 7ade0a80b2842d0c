//! Memory-mapped input files.

use std::path::Path;

use arrow::buffer::Buffer;
use bytes::Bytes;
use memmap2::Mmap;

use crate::StoreError;
use crate::open::open_input;

/// Maps a whole file for reading. An empty file gives an empty buffer.
pub(crate) fn map(path: &Path) -> Result<Buffer, StoreError> {
    let failed = |source| StoreError::Open {
        path: path.to_owned(),
        source,
    };
    let file = open_input(path)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        return Ok(Buffer::from_vec(Vec::<u8>::new()));
    }
    // SAFETY: the map is only read. Files of plmkit are never changed in place: they are replaced by a rename,
    // which leaves a mapped inode as it was. A foreign program that cuts the file while it is mapped ends this
    // process with SIGBUS; it cannot make it use memory that is not the file's.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
    Ok(Buffer::from(Bytes::from_owner(map)))
}
