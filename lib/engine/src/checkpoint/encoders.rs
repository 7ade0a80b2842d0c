//! Threads that encode row groups and append them to the output under construction.

use std::io;
use std::thread::{self, JoinHandle, available_parallelism};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, bounded};
use plmkit_store::{PlacedRowGroup, StoreError, UnfinishedEmbeddings};

/// Twelve were no faster for residues of an H200, in memory and on a disk.
const MAX_THREADS: usize = 4;

/// A thread that encodes and writes a row group.
pub(crate) type RowGroupThread = JoinHandle<Result<PlacedRowGroup, StoreError>>;

/// The output under construction, with a thread for each row group on its way into it.
pub(crate) struct BlocksFile {
    pub(crate) file: UnfinishedEmbeddings,
    /// Receives where the next row group starts, once the one before it is encoded.
    next_start: Receiver<u64>,
}

/// The most threads that encode at once on this machine.
pub(crate) fn encoder_threads() -> usize {
    available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_THREADS)
}

impl BlocksFile {
    pub(crate) fn new(file: UnfinishedEmbeddings) -> Self {
        let (first, next_start) = bounded(1);
        // The channel has room for one.
        let _ = first.send(file.end());
        Self { file, next_start }
    }

    /// Cuts rows into row groups.
    pub(crate) fn cut(&self, rows: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
        self.file.encoder().cut(rows.iter())
    }

    /// Starts to encode and write the next row group.
    pub(crate) fn submit(&mut self, rows: Vec<RecordBatch>) -> Result<RowGroupThread, StoreError> {
        let (end, next_start) = bounded(1);
        let start = std::mem::replace(&mut self.next_start, next_start);
        let sink = self.file.sink();
        let thread = thread::Builder::new().name("encoder".into());
        let thread = thread.spawn(move || {
            let group = sink.encode(&rows)?;
            let start = start.recv().map_err(|_| {
                sink.failed(io::Error::other("the row group before it was not written"))
            })?;
            let _ = end.send(start + group.bytes());
            sink.write(&group, start)
        });
        thread.map_err(|source| self.file.sink().failed(source))
    }
}
