//! Messages between a run and its workers. A frame has a JSON head and, if it carries rows, one record batch as an Arrow IPC stream.
//!
//! ```text
//! u32 bytes of the head, u64 bytes of the body (little-endian) │ head │ body
//! ```
//!
//! Both ends are the same program, so the format needs no version.

use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroUsize;

use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use plmkit_esm2::{Buffer, Buffers, Device, ModelInfo};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::columns::into_arrow_buffer;

/// A request of a run to a worker, or an answer, which come in the order of the requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The first request: load the model, and answer [`Ready`](Self::Ready). These options differ from those of the run. All others are
    /// on the worker's command line.
    Load {
        device: Device,
        /// CPU threads.
        threads: NonZeroUsize,
        /// The most sequences and the most tokens of a batch.
        largest_batch: (usize, usize),
        /// Whether the worker logs messages about the model. Only one of all workers does.
        logs: bool,
    },
    /// The model is loaded.
    Ready(Box<ModelInfo>),
    /// Compute the batch, whose sequences are in the place of its rows. Or it is computed. The rows are in the body.
    Batch(Box<Batch>),
    /// The worker ends. This is its last message.
    Failed {
        /// The exit code of a run in one process that fails for the same reason.
        exit: u8,
        message: String,
    },
}

/// Encodes a frame into `frame`, in place of its content.
pub(crate) fn encode(mut frame: &mut Vec<u8>, message: &Message) -> io::Result<()> {
    let head = serde_json::to_vec(message)?;
    frame.clear();
    frame.extend((head.len() as u32).to_le_bytes());
    frame.extend(0u64.to_le_bytes());
    frame.extend(head);
    let start = frame.len();
    if let Message::Batch(batch) = message
        && let Some(rows) = &batch.rows
    {
        let mut writer = StreamWriter::try_new(&mut frame, &rows.schema()).map_err(invalid)?;
        writer.write(rows).map_err(invalid)?;
        writer.finish().map_err(invalid)?;
    }
    let bytes = (frame.len() - start) as u64;
    frame[4..12].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// Sends a message.
pub(crate) fn send(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut frame = Vec::new();
    encode(&mut frame, message)?;
    to.write_all(&frame)
}

/// Receives a message, with its rows in memory of `buffers`. Returns `None` if the other end hung up after the last frame.
pub(crate) fn receive(from: &mut impl Read, buffers: &Buffers<u8>) -> io::Result<Option<Message>> {
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
    let mut message: Message = serde_json::from_slice(&bytes(head.into())?)?;
    if let Message::Batch(batch) = &mut message
        && body > 0
    {
        let mut body = into_arrow_buffer(bytes(body)?);
        batch.rows = StreamDecoder::new().decode(&mut body).map_err(invalid)?;
    }
    Ok(Some(message))
}

fn invalid(error: ArrowError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
    use plmkit_contract::{Reason, Reject};
    use plmkit_store::PackedBatch;

    use super::*;

    fn rows() -> RecordBatch {
        let ordinals: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
        let values: ArrayRef = Arc::new(Float32Array::from(vec![1.5, -0.0, 3.0]));
        RecordBatch::try_from_iter([("ordinal", ordinals), ("value", values)]).expect("columns")
    }

    fn batch(name: &str, rows: Option<RecordBatch>) -> Batch {
        let passes = vec![vec![3]];
        let mut batch = Batch::new(name.to_owned(), PackedBatch::default(), passes, None);
        batch.rows = rows;
        batch
    }

    fn frame(batch: Batch) -> Vec<u8> {
        let mut frame = vec![1, 2, 3];
        encode(&mut frame, &Message::Batch(Box::new(batch))).expect("encoded");
        frame
    }

    fn received(line: &mut &[u8]) -> Option<Batch> {
        match receive(line, &Buffers::default()).expect("whole frames")? {
            Message::Batch(batch) => Some(*batch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn frames_arrive_with_their_rows_and_then_the_end() {
        let part = rows().slice(1, 1);
        let sent = [("a", Some(rows())), ("b", None), ("c", Some(part))];
        let frames = sent.clone().map(|(name, rows)| frame(batch(name, rows)));
        let line = frames.concat();
        let mut line = line.as_slice();
        for (name, rows) in sent {
            let found = received(&mut line).expect("a frame");
            assert_eq!((found.name.as_str(), found.rows), (name, rows));
        }
        assert!(received(&mut line).is_none());
    }

    #[test]
    fn a_batch_arrives_with_its_event_and_its_rejected_rows() {
        let mut batch = batch("a", None);
        batch.event.compute_ms = Some(20.5);
        batch.event.oom_splits = 2;
        let rejected = Reject {
            ordinal: 7,
            id: "P".to_owned(),
            length: 9,
            reason: Reason::OutOfMemory,
            start: Some(0),
        };
        batch.finish(rows(), vec![rejected]);
        let frame = frame(batch.clone());
        let found = received(&mut frame.as_slice()).expect("a frame");
        assert_eq!(found.rejected, batch.rejected);
        assert_eq!(found.event, batch.event);
        assert_eq!((found.name, found.passes), (batch.name, batch.passes));
        assert_eq!(found.rows, batch.rows);
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_an_error() {
        let frame = frame(batch("a head", Some(rows())));
        for end in 1..frame.len() {
            let cut = receive(&mut &frame[..end], &Buffers::default());
            assert!(cut.is_err(), "{end}");
        }
    }
}
