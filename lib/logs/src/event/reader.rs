//! Reads run events.

use std::io::BufRead;
use std::path::PathBuf;

use super::{BatchDone, Event, RunDone, RunStarted};
use crate::lines::LogReader;
use crate::{LogError, SkippedLines};

/// The events of a log, in the order of the lines. Keeps one line in memory.
///
/// Unknown types and fields are skipped: a newer program may write more. A last line without a newline is skipped as well, see
/// [`EventReader::torn`], and so are malformed lines, see [`EventReader::skipped`]. If two or more lines that are one in ten are
/// malformed, the last item is an error about the first of them; if the first line is, the first item.
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
pub struct EventReader<R>(LogReader<R>);

impl<R: BufRead> EventReader<R> {
    /// Reads a log from `source`; `path` names it in errors.
    pub fn new(source: R, path: impl Into<PathBuf>) -> Self {
        Self(LogReader::new(source, path.into()))
    }

    /// Whether a last line without a newline was left out. Known at the end.
    pub fn torn(&self) -> bool {
        self.0.torn()
    }

    /// Returns the malformed lines that were left out so far.
    pub fn skipped(&self) -> Option<SkippedLines> {
        self.0.skipped()
    }
}

impl<R: BufRead> Iterator for EventReader<R> {
    type Item = Result<Event, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.read_item(parse_event).transpose()
    }
}

/// The start of a batch event that plmkit writes.
const BATCH: &[u8] = b"{\"type\":\"batch\",";

/// Parses the line of an event. Returns `None` for a blank line and for an unknown type. The error has no file and line.
pub fn parse_event(line: &[u8]) -> Result<Option<Event>, String> {
    let line = line.trim_ascii_end();
    if line.is_empty() {
        return Ok(None);
    }
    // Most lines of a long log are batches. serde's tagged enums copy each value, which takes three times as long.
    let event = if line.starts_with(BATCH) {
        serde_json::from_slice(line).map(Event::Batch)
    } else {
        serde_json::from_slice(line)
    };
    let event = event.map_err(|error| not_an_event(&error))?;
    match &event {
        Event::Run(run) => check_run(run)?,
        Event::Batch(batch) => check_batch(batch)?,
        Event::Done(done) => check_done(done)?,
        _ => {}
    }
    if let Some(boot_s) = event.boot_s() {
        check_duration("boot_s", boot_s)?;
    }
    Ok(Some(event).filter(|event| *event != Event::Unknown))
}

/// Replaces serde's position, which counts lines from the start of this line.
fn not_an_event(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    format!("not a run event: {reason} (column {})", error.column())
}

/// The longest duration, in seconds or milliseconds. It keeps sums over a log finite.
const MAX_DURATION: f64 = 1e13;

/// The shortest that is not none: no clock has less. It keeps rates over a log finite.
const MIN_DURATION: f64 = 1e-9;

/// The most worker processes of a run.
pub const MAX_WORKERS: u64 = 4096;

/// The most that the offsets of a batch can count. It keeps sums over a log from overflowing.
const MAX_COUNT: u64 = i32::MAX as u64;

/// The most that a run can count: what a number of JSON holds exactly.
const MAX_TOTAL: u64 = 1 << 53;

/// Refuses impossible values.
fn check_run(run: &RunStarted) -> Result<(), String> {
    check_durations(&[
        ("load_ms", run.load_ms),
        ("compile_ms", run.compile_ms),
        ("pin_ms", run.pin_ms),
        ("compare_ms", run.compare_ms),
    ])?;
    let counts = [
        ("batches_total", run.batches_total.unwrap_or(0)),
        ("batches_saved", run.batches_saved.unwrap_or(0)),
        ("sequences_total", run.sequences_total.unwrap_or(0)),
        ("tokens_total", run.tokens_total.unwrap_or(0)),
    ];
    check_counts(&counts, MAX_TOTAL, "run")
}

fn check_done(done: &RunDone) -> Result<(), String> {
    check_duration("elapsed_s", done.elapsed_s)?;
    let counts = [
        ("sequences", done.sequences),
        ("tokens", done.tokens),
        ("residues", done.residues),
        ("rejected", done.rejected),
    ];
    check_counts(&counts, MAX_TOTAL, "run")
}

fn check_batch(batch: &BatchDone) -> Result<(), String> {
    check_durations(&[
        ("elapsed_s", batch.elapsed_s),
        ("wait_ms", batch.wait_ms),
        ("h2d_ms", batch.h2d_ms),
        ("compute_ms", batch.compute_ms),
        ("d2h_ms", batch.d2h_ms),
        ("write_ms", batch.write_ms),
    ])?;
    let counts = [
        ("sequences", batch.sequences),
        ("tokens", batch.tokens),
        ("residues", batch.residues),
        ("longest", batch.longest.unwrap_or(0)),
        ("oom_splits", batch.oom_splits),
        ("recomputed", batch.recomputed),
        ("rejected", batch.rejected),
    ];
    check_counts(&counts, MAX_COUNT, "batch")?;
    if let Some(worker) = batch.worker.filter(|&worker| worker >= MAX_WORKERS) {
        return Err(format!(
            "worker is out of range; expected less than {MAX_WORKERS}, found {worker}"
        ));
    }
    match batch.utilization {
        Some(value) if !(0.0..=1.0).contains(&value) => Err(format!(
            "utilization is out of range; expected 0 to 1, found {value}"
        )),
        _ => Ok(()),
    }
}

fn check_counts(counts: &[(&str, u64)], most: u64, of: &str) -> Result<(), String> {
    let wrong = counts.iter().find(|(_, count)| *count > most);
    wrong.map_or(Ok(()), |(name, count)| {
        Err(format!(
            "{name} is out of range; expected at most {most} in a {of}, found {count}"
        ))
    })
}

fn check_durations(durations: &[(&str, Option<f64>)]) -> Result<(), String> {
    let mut known = durations
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    known.try_for_each(|(name, value)| check_duration(name, value))
}

fn check_duration(name: &str, value: f64) -> Result<(), String> {
    if value == 0.0 || (MIN_DURATION..=MAX_DURATION).contains(&value) {
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

    const BATCH: &str =
        r#"{"type":"batch","run":"r","batch":0,"sequences":1,"tokens":4,"residues":2}"#;

    #[test]
    #[rustfmt::skip]
    fn a_malformed_line_or_an_impossible_value_is_refused_with_its_line() {
        let done = r#"{"type":"done","run":"r","sequences":1,"tokens":4,"residues":2,"elapsed_s":-1,"outcome":"done"}"#;
        let run = r#"{"type":"run","run":"r","load_ms":-1}"#;
        let with = |field: &str| format!("{},{field}}}", &BATCH[..BATCH.len() - 1]);
        for (line, reason) in [
            (BATCH[..BATCH.len() - 5].to_owned(), "not a run event: EOF"),
            ("[1]".to_owned(), "not a run event: "),
            ("{\"run\":\"r\"}".to_owned(), "not a run event: missing field `type`"),
            ("{\"type\":\"batch\",\"run\":\"r\"}".to_owned(), "not a run event: missing field `batch`"),
            ("{\"type\": \"batch\",\"run\":\"r\"}".to_owned(), "not a run event: missing field `batch`"),
            (with("\"wait_ms\":-0.5"), "wait_ms is out of range; expected a duration, found -0.5"),
            (with("\"wait_ms\":1e300"), "wait_ms is out of range"),
            (with("\"wait_ms\":1e-300"), "wait_ms is out of range"),
            (with("\"wait_ms\":1e999"), "not a run event: "),
            (with("\"utilization\":1.2"), "utilization is out of range; expected 0 to 1, found 1.2"),
            (with("\"queue_depth\":-1"), "not a run event: "),
            (with("\"boot_s\":-1"), "boot_s is out of range"),
            (BATCH.replace(":4,", ":18446744073709551615,"), "tokens is out of range; expected at most 2147483647"),
            (done.to_owned(), "elapsed_s is out of range"),
            (run.to_owned(), "load_ms is out of range; expected a duration, found -1"),
        ] {
            // Twice: one bad line is left out.
            let log = format!("{BATCH}\n\n{line}\n{line}\n{BATCH}\n");
            let error = EventReader::new(log.as_bytes(), "e.jsonl").find_map(Result::err);
            let error = error.unwrap();
            assert_eq!(error.exit(), Exit::Data);
            let expected = format!("e.jsonl: line 3: {reason}");
            assert!(error.to_string().starts_with(&expected), "{error}: {expected}");
        }
    }

    #[test]
    fn a_batch_is_the_same_with_and_without_spaces() {
        let spaced = BATCH.replace("\"type\":\"batch\",", "\"type\": \"batch\", ");
        assert_eq!(
            parse_event(spaced.as_bytes()),
            parse_event(BATCH.as_bytes())
        );
    }
}
