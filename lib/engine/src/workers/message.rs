//! What a run and its workers say to each other: frames of a JSON head and, where there are rows, one record batch as an
//! Arrow IPC stream.
//!
//! ```text
//! u32 bytes of the head, u64 bytes of the body (little-endian) │ head │ body
//! ```
//!
//! Both ends are the same program, so that the form needs no version.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use plmkit_contract::{Exit, Labels};
use plmkit_esm2::{Buffer, Buffers, Device};
use plmkit_store::PackedBatch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, BatchResult};
use crate::columns::into_arrow_buffer;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::sample::Sample;

/// A request of a run to a worker. The first is [`Load`](Request::Load).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Load the model, and answer [`Answer::Ready`].
    Load(Load),
    /// Compare int8 with f32, and answer [`Answer::Parity`].
    Measure(Sample),
    /// Compute the batch in the body, and answer [`Answer::Batch`].
    Batch(BatchPlace),
}

/// How a worker loads the model; the rest is on its command line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) device: Device,
    /// CPU threads.
    pub(crate) threads: usize,
    /// Whether the windows of a protein give one row together.
    pub(crate) stitched: bool,
    /// The columns that rows have beside the key.
    pub(crate) labels: Labels,
    /// The most sequences, and the most tokens, of a pack.
    pub(crate) largest: (usize, usize),
    /// Whether it says what people should know of the model: one of all workers does.
    pub(crate) speaks: bool,
}

/// A batch without its sequences.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BatchPlace {
    /// Position among all batches of the run.
    index: u64,
    /// The batches file, for messages.
    path: String,
    index_in_file: usize,
    stitched: bool,
}

/// An answer of a worker, in the order of the requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The model is loaded.
    Ready(ModelInfo),
    /// How near int8 came to f32.
    Parity(Parity),
    /// A batch is computed; its rows are in the body.
    Batch {
        /// Its position among all batches of the run.
        index: u64,
        result: BatchResult,
    },
    /// The worker ends. Nothing follows.
    Failed {
        /// The exit code that a run in one process would have had.
        exit: u8,
        /// What is wrong.
        message: String,
    },
}

impl BatchPlace {
    pub(crate) fn new(batch: &Batch) -> Self {
        Self {
            index: batch.index,
            path: batch.path.to_string_lossy().into_owned(),
            index_in_file: batch.index_in_file,
            stitched: batch.stitched,
        }
    }

    /// The batch that has these rows.
    pub(crate) fn with_rows(self, rows: RecordBatch) -> Result<Batch, String> {
        Ok(Batch {
            index: self.index,
            path: Arc::from(Path::new(&self.path)),
            index_in_file: self.index_in_file,
            tail: false,
            token_budget: None,
            packed: PackedBatch::new(rows)?,
            stitched: self.stitched,
            ends_whole: true,
        })
    }
}

impl Answer {
    /// The last answer of a worker that ends with `exit`.
    pub(crate) fn failed(exit: Exit, message: String) -> Self {
        Self::Failed {
            exit: exit.code(),
            message,
        }
    }
}

/// The bytes of a frame.
pub(crate) fn frame(head: &impl Serialize, body: Option<&RecordBatch>) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    write_frame(&mut frame, head, body)?;
    Ok(frame)
}

/// Writes a frame in place of the bytes in `frame`.
pub(crate) fn write_frame(
    mut frame: &mut Vec<u8>,
    head: &impl Serialize,
    body: Option<&RecordBatch>,
) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    frame.clear();
    frame.extend((head.len() as u32).to_le_bytes());
    frame.extend(0u64.to_le_bytes());
    frame.extend(head);
    let start = frame.len();
    if let Some(rows) = body {
        let mut writer = StreamWriter::try_new(&mut frame, &rows.schema()).map_err(invalid)?;
        writer.write(rows).map_err(invalid)?;
        writer.finish().map_err(invalid)?;
    }
    let bytes = (frame.len() - start) as u64;
    frame[4..12].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// Writes a frame.
pub(crate) fn send(
    to: &mut impl Write,
    head: &impl Serialize,
    body: Option<&RecordBatch>,
) -> io::Result<()> {
    to.write_all(&frame(head, body)?)
}

/// Reads a frame, its rows into memory of `buffers`; `None` where the other end has gone after the last one.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &mut impl Read,
    buffers: &Buffers<u8>,
) -> io::Result<Option<(T, Option<RecordBatch>)>> {
    let (mut first, mut sizes) = (Vec::new(), [0; 12]);
    match from.take(1).read_to_end(&mut first)? {
        0 => return Ok(None),
        _ => from.read_exact(&mut sizes[1..])?,
    }
    sizes[0] = first[0];
    let (head, body) = sizes.split_at(4);
    let head = u32::from_le_bytes(head.try_into().expect("4 bytes"));
    let body = u64::from_le_bytes(body.try_into().expect("8 bytes"));
    let mut bytes = |count: u64| -> io::Result<Buffer<u8>> {
        let mut bytes = buffers.take(count as usize);
        from.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let head: T = serde_json::from_slice(&bytes(head.into())?)?;
    if body == 0 {
        return Ok(Some((head, None)));
    }
    let mut body = into_arrow_buffer(bytes(body)?);
    let rows = StreamDecoder::new().decode(&mut body).map_err(invalid)?;
    Ok(Some((head, rows)))
}

fn invalid(error: ArrowError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::{Float32Array, Int64Array};
    use plmkit_contract::Reason;
    use plmkit_esm2::{DeviceTimes, KernelTimes};

    use super::*;
    use crate::batch::BatchStats;

    fn rows() -> RecordBatch {
        let ordinals: arrow::array::ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
        let values: arrow::array::ArrayRef = Arc::new(Float32Array::from(vec![1.5, -0.0, 3.0]));
        RecordBatch::try_from_iter([("ordinal", ordinals), ("value", values)]).expect("columns")
    }

    #[test]
    fn what_is_sent_is_received_with_its_rows_and_then_the_end() {
        let mut line = Vec::new();
        send(&mut line, &"a head", Some(&rows())).unwrap();
        send(&mut line, &"no rows", None).unwrap();
        let (mut from, buffers) = (line.as_slice(), Buffers::default());
        let (head, body) = receive::<String>(&mut from, &buffers)
            .unwrap()
            .expect("a frame");
        assert_eq!((head.as_str(), body), ("a head", Some(rows())));
        let (head, body) = receive::<String>(&mut from, &buffers)
            .unwrap()
            .expect("a frame");
        assert_eq!((head.as_str(), body), ("no rows", None));
        assert!(receive::<String>(&mut from, &buffers).unwrap().is_none());
    }

    #[test]
    fn what_a_device_took_comes_with_the_result() {
        let ms = Duration::from_millis;
        let stats = BatchStats {
            wait: ms(1),
            compute: ms(20),
            device: Some(DeviceTimes {
                h2d: ms(2),
                compute: ms(20),
                d2h: ms(3),
                kernels: Some(KernelTimes::default()),
            }),
            queue_depth: 4,
            worker: None,
            oom_splits: 2,
            in_f32: 1,
        };
        let result = BatchResult {
            rows: rows(),
            rejected: vec![(1, Reason::OutOfMemory)],
            stats: Some(stats),
        };
        let frame = frame(&result, Some(&result.rows)).unwrap();
        let (received, body) = receive::<BatchResult>(&mut frame.as_slice(), &Buffers::default())
            .unwrap()
            .expect("a frame");
        assert_eq!(received.rejected, result.rejected);
        assert_eq!(received.stats, Some(stats));
        assert_eq!(body, Some(rows()));
    }

    #[test]
    fn rows_that_are_part_of_others_are_sent_alone() {
        let frame = frame(&0, Some(&rows().slice(1, 1))).unwrap();
        let (_, body) = receive::<u8>(&mut frame.as_slice(), &Buffers::default())
            .unwrap()
            .expect("a frame");
        assert_eq!(body, Some(rows().slice(1, 1)));
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_an_error() {
        let frame = frame(&"a head", Some(&rows())).unwrap();
        for end in 1..frame.len() {
            assert!(
                receive::<String>(&mut &frame[..end], &Buffers::default()).is_err(),
                "{end}"
            );
        }
    }
}
