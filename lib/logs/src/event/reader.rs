//! Reads run events.

use std::ops::RangeInclusive;

use super::Event;
use crate::{LineParser, LogReader, Timestamp};

/// The events of a log. Unknown types and fields are skipped: a newer program may write more.
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
/// assert_eq!(reader.finish()?.map(|torn| torn.first_line), Some(3));
/// # Ok::<(), plmkit_logs::LogError>(())
/// ```
pub type EventReader<R> = LogReader<R, EventLines>;

/// Parses the lines of an event log.
#[derive(Debug, Default)]
pub struct EventLines;

impl LineParser for EventLines {
    type Item = Event;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Event>, String> {
        // Most lines of a long log are batches. serde's tagged enums copy each value, which takes three times as long.
        let event = if line.starts_with(BATCH) {
            serde_json::from_slice(line).map(Event::Batch)
        } else {
            serde_json::from_slice(line)
        };
        let event = event.map_err(|error| not_an_event(&error))?;
        check(&event)?;
        Ok(Some(event).filter(|event| *event != Event::Unknown))
    }

    fn time(event: &Event) -> Option<Timestamp> {
        event.time()
    }
}

/// The start of a batch event that plmkit writes.
const BATCH: &[u8] = b"{\"type\":\"batch\",";

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
fn check(event: &Event) -> Result<(), String> {
    check_durations(&[("boot_s", event.boot_s())])?;
    match event {
        Event::Run(run) => {
            check_durations(&[
                ("load_ms", run.load_ms),
                ("compile_ms", run.compile_ms),
                ("pin_ms", run.pin_ms),
                ("compare_ms", run.compare_ms),
            ])?;
            let totals = [
                ("batches_total", run.batches_total),
                ("batches_saved", run.batches_saved),
                ("sequences_total", run.sequences_total),
                ("tokens_total", run.tokens_total),
            ];
            check_counts(&totals, MAX_TOTAL)
        }
        Event::Batch(batch) => {
            check_durations(&[
                ("elapsed_s", batch.elapsed_s),
                ("wait_ms", batch.wait_ms),
                ("h2d_ms", batch.h2d_ms),
                ("compute_ms", batch.compute_ms),
                ("d2h_ms", batch.d2h_ms),
                ("write_ms", batch.write_ms),
            ])?;
            let counts = [
                ("sequences", Some(batch.sequences)),
                ("tokens", Some(batch.tokens)),
                ("residues", Some(batch.residues)),
                ("longest", batch.longest),
                ("oom_splits", Some(batch.oom_splits)),
                ("recomputed", Some(batch.recomputed)),
                ("rejected", Some(batch.rejected)),
            ];
            check_counts(&counts, MAX_COUNT)?;
            check_counts(&[("worker", batch.worker)], MAX_WORKERS - 1)?;
            check_values(&[("utilization", batch.utilization)], 0.0..=1.0, "0 to 1")
        }
        Event::Done(done) => {
            check_durations(&[("elapsed_s", Some(done.elapsed_s))])?;
            let counts = [
                ("sequences", Some(done.sequences)),
                ("tokens", Some(done.tokens)),
                ("residues", Some(done.residues)),
                ("rejected", Some(done.rejected)),
            ];
            check_counts(&counts, MAX_TOTAL)
        }
        Event::Probe(_) | Event::Unknown => Ok(()),
    }
}

fn check_durations(values: &[(&str, Option<f64>)]) -> Result<(), String> {
    check_values(values, MIN_DURATION..=MAX_DURATION, "a duration")
}

fn check_counts(values: &[(&str, Option<u64>)], most: u64) -> Result<(), String> {
    let wrong = values.iter().find(|(_, count)| *count > Some(most));
    wrong.map_or(Ok(()), |(name, count)| {
        let found = count.unwrap_or_default();
        Err(format!(
            "{name} is out of range; expected at most {most}, found {found}"
        ))
    })
}

/// Refuses values outside of a range, except 0.
fn check_values(
    values: &[(&str, Option<f64>)],
    range: RangeInclusive<f64>,
    expected: &str,
) -> Result<(), String> {
    let known = values
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    let mut wrong = known.filter(|(_, value)| *value != 0.0 && !range.contains(value));
    wrong.next().map_or(Ok(()), |(name, value)| {
        Err(format!(
            "{name} is out of range; expected {expected}, found {value}"
        ))
    })
}

#[cfg(test)]
mod tests;
