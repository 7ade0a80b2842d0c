//! Writes run events.

use std::path::Path;

use plmkit_store::StoreError;

use super::Event;
use crate::append::AppendLog;

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
pub struct EventWriter(AppendLog);

impl EventWriter {
    /// Opens or creates the log at `path`. Cuts off a torn last line of a killed run.
    pub fn append(path: &Path) -> Result<Self, StoreError> {
        AppendLog::open(path, "a run event log", b"{\"type\":\"", false).map(Self)
    }

    /// Adds an event.
    pub fn write(&mut self, event: &Event) -> Result<(), StoreError> {
        // Numbers and strings always serialise.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        self.0.write(&line)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::{BatchDone, RunDone, RunStarted};

    #[test]
    fn a_torn_line_is_cut_off_and_each_event_is_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        // A line that a killed run left.
        fs::write(&path, br#"{"type":"batch","run":"fir"#).unwrap();
        let mut writer = EventWriter::append(&path).unwrap();
        let events = [
            Event::Run(RunStarted::default()),
            Event::Batch(BatchDone::default()),
            Event::Done(RunDone::default()),
        ];
        for (event, lines) in events.iter().zip(1..) {
            writer.write(event).unwrap();
            let written = fs::read_to_string(&path).unwrap();
            assert_eq!(written.lines().count(), lines);
        }
    }
}
