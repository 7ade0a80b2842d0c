//! Writes run events.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Event;
use crate::LogError;
use crate::append::{AppendLog, LogKind};

/// How long events may stay in memory, so that thousands of short batches a second do not cost as many writes.
const MAX_DELAY: Duration = Duration::from_millis(200);

const KIND: LogKind = LogKind {
    name: "a run event log",
    magic: b"{\"type\":\"",
    one_writer: false,
};

/// Appends events to a log.
///
/// A run must not fail because of its log. The first error is returned, so that the caller can warn. It closes the writer:
/// later events are dropped, and the result is `Ok`.
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
    /// Opens or creates the log at `path`. Cuts off a torn last line of a killed run.
    pub fn append(path: &Path) -> Result<Self, LogError> {
        Ok(Self {
            log: AppendLog::open(path, &KIND)?,
            flushed: Instant::now(),
        })
    }

    /// Adds an event. The start and the end of a run are written at once, a batch within 200 ms or with the next event.
    pub fn write(&mut self, event: &Event) -> Result<(), LogError> {
        // Numbers and strings always serialise.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        self.log.push(&line);
        if matches!(event, Event::Batch(_)) && self.flushed.elapsed() < MAX_DELAY {
            return Ok(());
        }
        self.flush()
    }

    /// Writes pending events.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.flushed = Instant::now();
        self.log.flush()
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        // Nobody is left to warn. A lost event is no lost result.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::{BatchDone, RunDone, RunStarted};

    #[test]
    fn short_batches_share_a_write_and_start_and_end_are_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        // A line that a killed run left.
        fs::write(&path, br#"{"type":"batch","run":"fir"#).unwrap();
        let lines = || fs::read_to_string(&path).unwrap().lines().count();
        let batch = Event::Batch(BatchDone::default());
        let mut writer = EventWriter::append(&path).unwrap();
        writer.write(&Event::Run(RunStarted::default())).unwrap();
        assert_eq!(lines(), 1);
        writer.write(&batch).unwrap();
        assert_eq!(lines(), 1, "within the delay");
        writer.flushed = writer.flushed.checked_sub(MAX_DELAY).unwrap();
        writer.write(&batch).unwrap();
        assert_eq!(lines(), 3, "the delay is over");
        writer.write(&batch).unwrap();
        writer.write(&Event::Done(RunDone::default())).unwrap();
        assert_eq!(lines(), 5);
        writer.write(&batch).unwrap();
        drop(writer);
        assert_eq!(lines(), 6);
    }
}
