//! Threads that encode row groups and write them, each where the one before it ends.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle, available_parallelism};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, bounded};
use plmkit_store::{PlacedRowGroup, RowGroupEncoder, Sink, StoreError, UnfinishedEmbeddings};

/// More threads than this write faster than file systems take it.
const THREADS: usize = 4;

/// A row group that a thread encodes and writes.
pub(crate) type RowGroupThread = JoinHandle<Result<PlacedRowGroup, StoreError>>;

/// Starts a thread for each row group.
pub(crate) struct Encoders {
    encoder: Arc<RowGroupEncoder>,
    sink: Sink,
    /// Where the next row group begins, once the one before it is encoded.
    start: Receiver<u64>,
}

/// The most threads that encode at once, on this machine.
pub(crate) fn encoder_threads() -> usize {
    available_parallelism().map_or(1, usize::from).min(THREADS)
}

impl Encoders {
    /// For row groups behind those that `file` has.
    pub(crate) fn new(file: &UnfinishedEmbeddings) -> Self {
        let (first, start) = bounded(1);
        // There is room for one.
        let _ = first.send(file.end());
        Self {
            encoder: Arc::new(file.encoder().clone()),
            sink: file.sink(),
            start,
        }
    }

    /// Cuts rows into row groups.
    pub(crate) fn cut(&self, rows: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
        self.encoder.cut(rows.iter())
    }

    /// Has the next row group encoded and written.
    pub(crate) fn submit(&mut self, rows: Vec<RecordBatch>) -> Result<RowGroupThread, StoreError> {
        let (end, next) = bounded(1);
        let start = std::mem::replace(&mut self.start, next);
        let (encoder, sink) = (Arc::clone(&self.encoder), self.sink.clone());
        let thread = thread::Builder::new().name("encoder".into());
        let thread = thread.spawn(move || {
            let group = encoder.encode(&rows);
            let group = group.map_err(|error| sink.encoding(error))?;
            let start = start.recv().map_err(|_| {
                sink.failed(io::Error::other("the row group before it was not written"))
            })?;
            let _ = end.send(start + group.bytes());
            sink.write(&group, start)
        });
        thread.map_err(|source| self.sink.failed(source))
    }
}
