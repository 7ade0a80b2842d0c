//! Writing run events.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Event;
use crate::LogError;
use crate::append::{AppendLog, LogKind};

/// How long events of short batches may lie in memory, so that thousands of batches a second do not cost as
/// many writes.
const MAX_DELAY: Duration = Duration::from_millis(200);

/// How every event log begins.
pub const EVENT_MAGIC: &[u8] = b"{\"type\":\"";

const KIND: LogKind = LogKind {
    name: "a run event log",
    magic: EVENT_MAGIC,
    one_writer: false,
};

/// Appends events to a log.
///
/// A run must not fail because its log cannot be written: the first error is returned, for the caller to warn;
/// after it the writer is closed, drops what it is given, and returns `Ok`.
///
/// ```
/// use plmkit_logs::event::{Event, EventReader, EventWriter, RunStarted, run_id};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("events.jsonl");
/// let event = Event::Run(RunStarted { run: run_id(), ..RunStarted::default() });
/// EventWriter::append(&path)?.write(&event)?;
///
/// let log = std::fs::read(&path)?;
/// let read = EventReader::new(log.as_slice(), &path).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(read, [event]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EventWriter {
    log: AppendLog,
    flushed: Instant,
}

impl EventWriter {
    /// Opens the log at `path`, or makes an empty one. Cuts off a torn last line that a killed run left.
    pub fn append(path: &Path) -> Result<Self, LogError> {
        Ok(Self {
            log: AppendLog::open(path, &KIND)?,
            flushed: Instant::now(),
        })
    }

    /// Adds an event. The start and the end of a run are on disk at once, a batch within 200 ms or with the next.
    pub fn write(&mut self, event: &Event) -> Result<(), LogError> {
        // Structs of numbers and strings always serialise.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        self.log.push(&line);
        if matches!(event, Event::Batch(_)) && self.flushed.elapsed() < MAX_DELAY {
            return Ok(());
        }
        self.flush()
    }

    /// Hands pending events to the system.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.flushed = Instant::now();
        self.log.flush()
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        // Nobody is left to be told; an event lost here is no lost result.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::{BatchDone, EventReader, RunDone, RunStarted};

    fn batch(run: &str, batch: u64) -> Event {
        Event::Batch(BatchDone {
            run: run.to_owned(),
            batch,
            ..BatchDone::default()
        })
    }

    #[test]
    fn short_batches_share_a_write_and_the_end_of_the_run_is_on_disk_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let lines = || fs::read_to_string(&path).unwrap().lines().count();
        let mut writer = EventWriter::append(&path).unwrap();
        writer
            .write(&Event::Run(RunStarted {
                run: "r".to_owned(),
                ..RunStarted::default()
            }))
            .unwrap();
        assert_eq!(lines(), 1);
        writer.write(&batch("r", 0)).unwrap();
        assert_eq!(lines(), 1, "within the delay");
        writer.flushed = writer.flushed.checked_sub(MAX_DELAY).unwrap();
        writer.write(&batch("r", 1)).unwrap();
        assert_eq!(lines(), 3, "the delay is over");
        writer.write(&batch("r", 2)).unwrap();
        writer
            .write(&Event::Done(RunDone {
                run: "r".to_owned(),
                ..RunDone::default()
            }))
            .unwrap();
        assert_eq!(lines(), 5);
    }

    #[test]
    fn a_run_after_a_killed_one_leaves_a_log_without_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        EventWriter::append(&path)
            .unwrap()
            .write(&batch("first", 0))
            .unwrap();
        let mut torn = fs::read(&path).unwrap();
        torn.extend_from_slice(br#"{"type":"batch","run":"fir"#);
        fs::write(&path, torn).unwrap();

        EventWriter::append(&path)
            .unwrap()
            .write(&batch("second", 0))
            .unwrap();
        let log = fs::read(&path).unwrap();
        let events: Vec<_> = EventReader::new(log.as_slice(), &path)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(events, [batch("first", 0), batch("second", 0)]);
    }
}
