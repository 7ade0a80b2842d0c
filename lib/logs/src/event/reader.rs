//! Reads run events.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Event, Totals};
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
/// assert!(reader.is_torn());
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

/// Refuses impossible fields of an event: each check comes with the fields that it is for.
macro_rules! check {
    ($event:ident, $($check:ident: $($field:ident)+;)+) => {
        {$($($check(stringify!($field), $event.$field)?;)+)+}
    };
}

/// Refuses impossible values.
fn check(event: &Event) -> Result<(), String> {
    duration("boot_s", event.boot_s())?;
    match event {
        Event::Run(run) => check! { run,
            duration: load_ms compile_ms pin_ms compare_ms;
            of_run: batches_total batches_saved sequences_total tokens_total;
        },
        Event::Batch(batch) => {
            total("total", batch.total.as_ref())?;
            check! { batch,
            duration: elapsed_s cpu_s wait_ms h2d_ms compute_ms d2h_ms write_ms;
            of_batch: sequences tokens residues longest oom_splits recomputed rejected;
            }
        }
        Event::Done(done) => {
            total("total", done.total.as_ref())?;
            check! { done,
                duration: elapsed_s cpu_s;
                of_run: rejected;
            }
        }
        Event::Probe(_) | Event::Unknown => {}
    }
    Ok(())
}

/// Refuses impossible totals.
fn total(name: &str, total: Option<&Totals>) -> Result<(), String> {
    let Some(total) = total else { return Ok(()) };
    for (stage, time) in &total.stages {
        duration(&format!("{name}.stages.{stage}.ms"), time.ms)?;
        duration(&format!("{name}.stages.{stage}.max_ms"), time.max_ms)?;
    }
    for (kernel, ms) in &total.kernels {
        duration(&format!("{name}.kernels.{kernel}"), *ms)?;
    }
    share("min_fill", total.packing.min_fill)?;
    for count in [total.batches, total.sequences, total.tokens, total.residues] {
        of_run(name, count)?;
    }
    Ok(())
}

/// In seconds or milliseconds. No clock has less than a nanosecond; a limit keeps rates and sums over a log finite.
fn duration(name: &str, value: impl Into<Option<f64>>) -> Result<(), String> {
    within(name, value, 1e-9..=1e13, "a duration")
}

fn share(name: &str, value: Option<f64>) -> Result<(), String> {
    within(name, value, 0.0..=1.0, "0 to 1")
}

/// The offsets of a batch can count no more. It keeps sums over a log from overflowing.
fn of_batch(name: &str, count: impl Into<Option<u64>>) -> Result<(), String> {
    at_most(name, count, i32::MAX as u64)
}

/// A number of JSON holds no more exactly.
fn of_run(name: &str, count: impl Into<Option<u64>>) -> Result<(), String> {
    at_most(name, count, 1 << 53)
}

fn at_most(name: &str, count: impl Into<Option<u64>>, most: u64) -> Result<(), String> {
    within(name, count, 0..=most, format_args!("at most {most}"))
}

/// Refuses a value outside of a range, except 0.
fn within<T: PartialOrd + Default + Display>(
    name: &str,
    value: impl Into<Option<T>>,
    range: RangeInclusive<T>,
    expected: impl Display,
) -> Result<(), String> {
    match value.into() {
        Some(found) if found != T::default() && !range.contains(&found) => Err(format!(
            "{name} is out of range; expected {expected}, found {found}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
