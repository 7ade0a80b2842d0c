//! The progress of a run: a line every 100 batches, and a warning where throughput is lost.

use plmkit_contract::plural;

use crate::Mean;
use crate::event::BatchDone;
use crate::thresholds::{PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW, QUEUE_STARVED_ABOVE_MS};

/// Batches between two lines.
const EVERY: u64 = 100;

/// Counts the batches of a run, and reports every 100.
///
/// ```
/// use plmkit_logs::event::BatchDone;
/// use plmkit_logs::{ProgressReporter, ProgressMessage};
///
/// let mut reporter = ProgressReporter::default();
/// let batch = |number: u64| BatchDone {
///     batch: number,
///     elapsed_s: Some(0.1 * (number + 1) as f64),
///     wait_ms: Some(0.5),
///     tokens: 16_000,
///     utilization: Some(0.98),
///     ..BatchDone::default()
/// };
/// let messages: Vec<ProgressMessage> = (0..100).flat_map(|number| reporter.add(&batch(number))).collect();
/// let line = "100 batches: 160000 tokens/s, 98.0 % full, waited 0.5 ms for each";
/// assert_eq!(messages, [ProgressMessage::Line(line.to_owned())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProgressReporter {
    batches: u64,
    elapsed_s: f64,
    recent: Recent,
    /// The packing below which there was a warning.
    warned_below: Option<f64>,
    warned_of_waits: bool,
}

/// The batches since the last line.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Elapsed time at the last line.
    since_s: f64,
    tokens: u64,
    packing: Mean,
    wait_ms: Mean,
    starved: u64,
}

/// A message about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressMessage {
    /// How it goes.
    Line(String),
    /// What is lost, and what to do.
    Warning(String),
}

impl ProgressReporter {
    /// Adds a batch, in the order in which they end, and returns what to log. Each warning comes once, that of packing once
    /// more where it gets worse.
    pub fn add(&mut self, batch: &BatchDone) -> Vec<ProgressMessage> {
        self.batches += 1;
        self.elapsed_s = self.elapsed_s.max(batch.elapsed_s.unwrap_or_default());
        let recent = &mut self.recent;
        recent.tokens += batch.tokens;
        if let Some(packing) = batch.packing().filter(|_| !batch.tail) {
            recent.packing.add(packing);
        }
        if let Some(wait_ms) = batch.wait_ms {
            recent.wait_ms.add(wait_ms);
            recent.starved += u64::from(wait_ms > QUEUE_STARVED_ABOVE_MS);
        }
        if !self.batches.is_multiple_of(EVERY) {
            return Vec::new();
        }
        let mut messages = vec![ProgressMessage::Line(self.line())];
        let warnings = [self.warn_of_packing(), self.warn_of_waits()];
        messages.extend(warnings.into_iter().flatten().map(ProgressMessage::Warning));
        self.recent = Recent {
            since_s: self.elapsed_s,
            ..Recent::default()
        };
        messages
    }

    fn line(&self) -> String {
        let recent = &self.recent;
        let seconds = self.elapsed_s - recent.since_s;
        let mut parts = Vec::new();
        if seconds > 0.0 {
            parts.push(format!("{:.0} tokens/s", recent.tokens as f64 / seconds));
        }
        if let Some(packing) = recent.packing.mean() {
            parts.push(format!("{:.1} % full", 100.0 * packing));
        }
        if let Some(wait_ms) = recent.wait_ms.mean() {
            parts.push(format!("waited {wait_ms:.1} ms for each"));
        }
        format!("{}: {}", plural(self.batches, "batch"), parts.join(", "))
    }

    fn warn_of_packing(&mut self) -> Option<String> {
        let packing = self.recent.packing.mean()?;
        let (how, below) = match packing {
            _ if packing < PACKING_CRITICAL_BELOW => ("far from full", PACKING_CRITICAL_BELOW),
            _ if packing < PACKING_MILD_BELOW => ("not full", PACKING_MILD_BELOW),
            _ => return None,
        };
        if self.warned_below.is_some_and(|warned| warned <= below) {
            return None;
        }
        self.warned_below = Some(below);
        Some(format!(
            "batches are {how}: {:.1} % of their token budget; expected at least {:.0} %: pack more sequences at once",
            100.0 * packing,
            100.0 * below
        ))
    }

    fn warn_of_waits(&mut self) -> Option<String> {
        if self.warned_of_waits || 2 * self.recent.starved <= self.recent.wait_ms.count() {
            return None;
        }
        self.warned_of_waits = true;
        Some(format!(
            "most batches let the device wait for more than {QUEUE_STARVED_ABOVE_MS} ms: raise --prefetch or read from a faster disk"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of 100 batches like this one.
    fn hundred(
        reporter: &mut ProgressReporter,
        utilization: f64,
        wait_ms: f64,
        tail: bool,
    ) -> Vec<ProgressMessage> {
        let batch = BatchDone {
            utilization: Some(utilization),
            wait_ms: Some(wait_ms),
            tail,
            ..BatchDone::default()
        };
        (0..EVERY).flat_map(|_| reporter.add(&batch)).collect()
    }

    fn warnings(said: &[ProgressMessage]) -> Vec<&str> {
        let warning = |said: &'_ ProgressMessage| matches!(said, ProgressMessage::Warning(_));
        said.iter()
            .filter(|said| warning(said))
            .map(|said| match said {
                ProgressMessage::Line(text) | ProgressMessage::Warning(text) => text.as_str(),
            })
            .collect()
    }

    #[test]
    fn a_run_without_loss_has_a_line_and_no_warning() {
        let mut reporter = ProgressReporter::default();
        assert!(warnings(&hundred(&mut reporter, 0.85, 50.0, false)).is_empty());
        let said = hundred(&mut reporter, 0.85, 0.0, false);
        assert_eq!(
            said,
            [ProgressMessage::Line(
                "200 batches: 85.0 % full, waited 0.0 ms for each".to_owned()
            )]
        );
    }

    #[test]
    fn packing_is_warned_of_once_for_each_of_two_tiers() {
        let mut reporter = ProgressReporter::default();
        let mut warned = |fill| warnings(&hundred(&mut reporter, fill, 0.0, false)).len();
        assert_eq!(
            [0.84, 0.83, 0.79, 0.5, 0.84, 0.9].map(&mut warned),
            [1, 0, 1, 0, 0, 0]
        );
    }

    #[test]
    fn leftovers_are_no_packing() {
        let said = hundred(&mut ProgressReporter::default(), 0.1, 0.0, true);
        assert_eq!(
            said,
            [ProgressMessage::Line(
                "100 batches: waited 0.0 ms for each".to_owned()
            )]
        );
    }

    #[test]
    fn a_starved_device_is_warned_of_once() {
        let mut reporter = ProgressReporter::default();
        let said = hundred(&mut reporter, 1.0, 50.1, false);
        assert!(warnings(&said)[0].contains("more than 50 ms"), "{said:?}");
        assert!(warnings(&hundred(&mut reporter, 1.0, 99.0, false)).is_empty());
    }

    #[test]
    fn the_rate_is_that_of_the_last_hundred() {
        let mut reporter = ProgressReporter::default();
        let lines: Vec<ProgressMessage> = (0..200)
            .flat_map(|number: u64| {
                reporter.add(&BatchDone {
                    tokens: 10,
                    elapsed_s: Some(if number < 100 { 1.0 } else { 3.0 }),
                    ..BatchDone::default()
                })
            })
            .collect();
        let line = |text: &str| ProgressMessage::Line(text.to_owned());
        assert_eq!(
            lines,
            [
                line("100 batches: 1000 tokens/s"),
                line("200 batches: 500 tokens/s")
            ]
        );
    }
}
