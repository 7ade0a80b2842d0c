//! Threads that encode row groups and write them, each where the one before it ends.

use std::sync::Arc;
use std::thread::{self, JoinHandle, available_parallelism};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use plmkit_store::{PlacedRowGroup, RowGroupEncoder, Sink, StoreError};

/// More threads than this write faster than file systems take it.
const THREADS: usize = 4;

/// What comes of a row group.
pub(crate) type Placed = Receiver<Result<PlacedRowGroup, StoreError>>;

/// A pool of threads.
pub(crate) struct Encoders {
    encoder: Arc<RowGroupEncoder>,
    sink: Sink,
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    /// Where the next row group begins, once that is known.
    start: Receiver<u64>,
}

/// The number of threads that encode, on this machine.
pub(crate) fn encoder_threads() -> usize {
    available_parallelism().map_or(1, usize::from).min(THREADS)
}

/// Rows on their way into a file.
struct Task {
    rows: Vec<RecordBatch>,
    start: Receiver<u64>,
    end: Sender<u64>,
    done: Sender<Result<PlacedRowGroup, StoreError>>,
}

impl Encoders {
    /// So many threads, the first row group of which begins at `start`.
    pub(crate) fn new(
        threads: usize,
        encoder: RowGroupEncoder,
        sink: &Sink,
        start: u64,
    ) -> Result<Self, StoreError> {
        let (tasks, queue) = unbounded::<Task>();
        let (first, turn) = bounded(1);
        // There is room for one.
        let _ = first.send(start);
        let encoder = Arc::new(encoder);
        let spawn = |_| {
            let (queue, encoder, sink) = (queue.clone(), Arc::clone(&encoder), sink.clone());
            let thread = thread::Builder::new().name("encoder".into());
            thread.spawn(move || {
                for task in queue {
                    task.run(&encoder, &sink);
                }
            })
        };
        let threads = (0..threads).map(spawn).collect::<Result<_, _>>();
        Ok(Self {
            threads: threads.map_err(|source| sink.failed(source))?,
            encoder,
            sink: sink.clone(),
            tasks: Some(tasks),
            start: turn,
        })
    }

    /// Cuts rows into row groups.
    pub(crate) fn cut<'r>(
        &self,
        rows: impl Iterator<Item = &'r RecordBatch> + Clone,
    ) -> Vec<Vec<RecordBatch>> {
        self.encoder.cut(rows)
    }

    /// Has the next row group encoded and written.
    pub(crate) fn submit(&mut self, rows: Vec<RecordBatch>) -> Placed {
        let (end, next) = bounded(1);
        let (done, placed) = bounded(1);
        let task = Task {
            rows,
            start: std::mem::replace(&mut self.start, next),
            end,
            done,
        };
        if let Some(tasks) = &self.tasks {
            // Where all threads have ended, the caller finds nobody at the other end.
            let _ = tasks.send(task);
        }
        placed
    }

    /// The error of a row group of which nothing came.
    pub(crate) fn ended(&mut self) -> StoreError {
        self.end();
        self.sink
            .failed(std::io::Error::other("a thread that encodes ended early"))
    }

    /// Waits until nothing more is written.
    pub(crate) fn end(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Task {
    fn run(self, encoder: &RowGroupEncoder, sink: &Sink) {
        let placed = match encoder.encode(&self.rows) {
            Err(error) => Err(sink.encoding(error)),
            Ok(group) => {
                // Where the one before it failed there is no place, and nothing is asked of this one.
                let Ok(start) = self.start.recv() else {
                    return;
                };
                let _ = self.end.send(start + group.bytes());
                sink.write(&group, start)
            }
        };
        let _ = self.done.send(placed);
    }
}
