//! Row groups on their way into a file that grows.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use rustix::fs::{Advice, fadvise};

use crate::StoreError;
use crate::row_group::{PlacedRowGroup, RowGroup};

/// Writes row groups into a file.
#[derive(Clone)]
pub struct Sink {
    pub(crate) file: Arc<File>,
    /// What messages name.
    pub(crate) named: PathBuf,
}

impl Sink {
    pub(crate) fn new(file: File, named: &Path) -> Self {
        Self {
            file: Arc::new(file),
            named: named.to_owned(),
        }
    }

    pub(crate) fn write_bytes(&self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, place);
        written.map_err(|source| self.failed(source))
    }

    /// Writes a row group whose bytes begin at `start`.
    pub fn write(&self, group: &RowGroup, start: u64) -> Result<PlacedRowGroup, StoreError> {
        let mut place = start;
        for bytes in group.pieces() {
            self.write_bytes(place, bytes)?;
            place += bytes.len() as u64;
        }
        // The system begins to write now what `record` would otherwise wait for all at once, and lets go of what is on disk: its memory
        // is used again for what follows, where new memory would be filled with zeros first. Where it does not, nothing is lost.
        let _ = fadvise(&self.file, 0, NonZero::new(place), Advice::DontNeed);
        let placed = group.placed(start);
        placed.map_err(|error| self.encoding(error))
    }

    /// The error of something that cannot be written.
    pub fn failed(&self, source: io::Error) -> StoreError {
        StoreError::cannot_write(&self.named)(source)
    }

    /// The error of rows that cannot be encoded.
    pub fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(&self.named, error)
    }
}
