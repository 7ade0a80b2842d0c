//! Reading run events.

use std::io::{self, BufRead};
use std::path::PathBuf;

use plmkit_store::StoreError;

use super::{BatchDone, Event};
use crate::LogError;
use crate::lines::CompleteLines;

/// The events of a log, in the order of the lines. Holds one line in memory.
///
/// Types and fields that it does not know are left out: a newer program may write more. A last line without
/// its newline is left out as well, see [`EventReader::torn`].
///
/// ```
/// use plmkit_logs::event::{Event, EventReader};
///
/// let log = concat!(
///     "{\"type\":\"run\",\"run\":\"r\",\"device\":\"cpu\"}\n",
///     "{\"type\":\"weather\",\"run\":\"r\"}\n",
///     "{\"type\":\"batch\",\"run\":\"r\",\"ba",
/// );
/// let mut reader = EventReader::new(log.as_bytes(), "events.jsonl");
/// let Some(Ok(Event::Run(run))) = reader.next() else { panic!("a run starts") };
/// assert_eq!(run.device.as_deref(), Some("cpu"));
/// assert!(reader.next().is_none());
/// assert!(reader.torn());
/// ```
pub struct EventReader<R> {
    lines: CompleteLines<R>,
    line: Vec<u8>,
    path: PathBuf,
}

impl<R: BufRead> EventReader<R> {
    /// Reads a log from `source`; `path` names it in errors.
    pub fn new(source: R, path: impl Into<PathBuf>) -> Self {
        Self {
            lines: CompleteLines::new(source),
            line: Vec::new(),
            path: path.into(),
        }
    }

    /// Whether a last line without its newline was left out: known at the end.
    pub fn torn(&self) -> bool {
        self.lines.torn()
    }

    fn advance(&mut self) -> Result<Option<Event>, LogError> {
        while self
            .lines
            .read_line(&mut self.line)
            .map_err(|error| self.read_error(error))?
        {
            let line = self.line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            if let Some(event) = parse_event(line).map_err(|reason| self.line_error(reason))? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn read_error(&self, source: io::Error) -> LogError {
        if source.kind() == io::ErrorKind::InvalidData {
            return self.line_error(source.to_string());
        }
        let path = self.path.clone();
        StoreError::Read { path, source }.into()
    }

    fn line_error(&self, reason: String) -> LogError {
        LogError::Line {
            path: self.path.clone(),
            line: self.lines.number(),
            reason,
        }
    }
}

impl<R: BufRead> Iterator for EventReader<R> {
    type Item = Result<Event, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// How a line begins that plmkit writes of a batch.
const BATCH: &[u8] = b"{\"type\":\"batch\",";

/// The event of a line; `None` for a type that is not known here. The error says what is wrong, without file and line.
pub fn parse_event(line: &[u8]) -> Result<Option<Event>, String> {
    // Nearly all lines of a long log. serde's tagged enums copy each value on the way, which takes three times as long.
    let event = if line.starts_with(BATCH) {
        serde_json::from_slice(line).map(Event::Batch)
    } else {
        serde_json::from_slice(line)
    };
    let event = event.map_err(|error| not_an_event(&error))?;
    match &event {
        Event::Batch(batch) => check_batch(batch)?,
        Event::Done(done) => check_duration("elapsed_s", done.elapsed_s)?,
        _ => {}
    }
    if let Some(boot_s) = event.boot_s() {
        check_duration("boot_s", boot_s)?;
    }
    Ok(Some(event).filter(|event| *event != Event::Unknown))
}

/// serde's own text ends with a place in the one line it saw, `line 1`, which is not the line of the log.
fn not_an_event(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    format!("not a run event: {reason} (column {})", error.column())
}

/// No run takes as long, in seconds or milliseconds: sums over a log stay finite.
const MAX_DURATION: f64 = 1e13;

/// What the offsets of a batch can count: sums over a log do not overflow.
const MAX_COUNT: u64 = i32::MAX as u64;

/// Values that no clock and no packer gives.
fn check_batch(batch: &BatchDone) -> Result<(), String> {
    for (name, value) in [
        ("elapsed_s", batch.elapsed_s),
        ("wait_ms", batch.wait_ms),
        ("h2d_ms", batch.h2d_ms),
        ("compute_ms", batch.compute_ms),
        ("d2h_ms", batch.d2h_ms),
        ("write_ms", batch.write_ms),
    ] {
        value.map_or(Ok(()), |value| check_duration(name, value))?;
    }
    for (name, count) in [
        ("sequences", batch.sequences),
        ("tokens", batch.tokens),
        ("residues", batch.residues),
        ("oom_splits", batch.oom_splits),
        ("rejected", batch.rejected),
    ] {
        if count > MAX_COUNT {
            return Err(format!(
                "{name} is out of range; expected at most {MAX_COUNT} in a batch, found {count}"
            ));
        }
    }
    match batch.utilization {
        Some(value) if !(0.0..=1.0).contains(&value) => Err(format!(
            "utilization is out of range; expected 0 to 1, found {value}"
        )),
        _ => Ok(()),
    }
}

fn check_duration(name: &str, value: f64) -> Result<(), String> {
    if (0.0..=MAX_DURATION).contains(&value) {
        Ok(())
    } else {
        Err(format!(
            "{name} is out of range; expected a duration, found {value}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Exit, Failure};

    use super::*;

    fn first_error(log: &str) -> String {
        let error = EventReader::new(log.as_bytes(), "e.jsonl")
            .find_map(Result::err)
            .unwrap();
        assert_eq!(error.exit(), Exit::Data);
        error.to_string()
    }

    const BATCH: &str =
        r#"{"type":"batch","run":"r","batch":0,"sequences":1,"tokens":4,"residues":2}"#;

    #[test]
    fn a_malformed_line_is_named_by_its_number() {
        let cut = &BATCH[..BATCH.len() - 5];
        let message = first_error(&format!("{BATCH}\n\n{cut}\n{BATCH}\n"));
        assert!(
            message.starts_with("e.jsonl: line 3: not a run event: EOF"),
            "{message}"
        );
        assert!(first_error("[1]\n").contains("line 1: not a run event"));
        assert!(first_error("{\"run\":\"r\"}\n").contains("missing field `type`"));
        assert!(
            first_error("{\"type\":\"batch\",\"run\":\"r\"}\n").contains("missing field `batch`")
        );
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let with = |field: &str| format!("{}{field}}}\n", &BATCH[..BATCH.len() - 1]);
        for duration in ["-0.5", "1e300"] {
            let message = first_error(&with(&format!(",\"wait_ms\":{duration}")));
            assert!(message.contains("wait_ms is out of range"), "{message}");
        }
        assert!(first_error(&with(",\"wait_ms\":1e999")).contains("not a run event"));
        let many = BATCH.replace("\"tokens\":4", "\"tokens\":18446744073709551615");
        let message = first_error(&format!("{many}\n"));
        assert!(
            message.contains("tokens is out of range; expected at most 2147483647"),
            "{message}"
        );
        let done = r#"{"type":"done","run":"r","sequences":1,"tokens":4,"residues":2,"elapsed_s":-1,"outcome":"done"}"#;
        assert!(first_error(&format!("{done}\n")).contains("elapsed_s is out of range"));
        assert!(first_error(&with(",\"utilization\":1.2")).contains("expected 0 to 1, found 1.2"));
        assert!(first_error(&with(",\"queue_depth\":-1")).contains("not a run event"));
    }

    #[test]
    fn a_batch_is_read_in_the_same_way_however_its_line_is_written() {
        let spaced = BATCH.replace("\"type\":\"batch\",", "\"type\": \"batch\", ");
        let read = |line: &str| {
            EventReader::new(line.as_bytes(), "e.jsonl")
                .next()
                .unwrap()
                .unwrap()
        };
        let compact = read(&format!("{BATCH}\n"));
        assert_eq!(read(&format!("{spaced}\n")), compact);
        let shorter = |line: &str| first_error(&format!("{}\n", line.replace("\"batch\":0,", "")));
        assert_eq!(
            shorter(BATCH).split(" (column").next(),
            shorter(&spaced).split(" (column").next()
        );
    }
}
