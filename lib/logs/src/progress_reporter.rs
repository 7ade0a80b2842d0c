//! Progress messages of a run: a line every 100 batches, and a warning if throughput is lost.

use plmkit_contract::plural;

use crate::Mean;
use crate::event::BatchDone;
use crate::thresholds::{QUEUE_STARVED_ABOVE_MS, packing_shortfall};

/// Batches between two lines.
const EVERY: u64 = 100;

/// Counts the batches of a run, and reports after every 100.
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
    /// The threshold of the last warning about packing.
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
    /// Progress.
    Line(String),
    /// A loss of throughput, and advice.
    Warning(String),
}

impl ProgressReporter {
    /// Adds a batch, in the order in which they end, and returns messages to log. Each warning comes once, that about packing
    /// once more if it gets worse.
    pub fn add(&mut self, batch: &BatchDone) -> Vec<ProgressMessage> {
        self.batches += 1;
        self.elapsed_s = self.elapsed_s.max(batch.elapsed_s.unwrap_or_default());
        let recent = &mut self.recent;
        recent.tokens += batch.tokens;
        recent
            .packing
            .extend(batch.packing().filter(|_| !batch.tail));
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
        let (how, below) = packing_shortfall(packing)?;
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

    /// The line and the warnings about 100 batches.
    fn report(reporter: &mut ProgressReporter, batch: &BatchDone) -> (String, Vec<String>) {
        let messages = (0..EVERY).flat_map(|_| reporter.add(batch));
        let (mut lines, mut warnings) = (Vec::new(), Vec::new());
        for message in messages {
            match message {
                ProgressMessage::Line(text) => lines.push(text),
                ProgressMessage::Warning(text) => warnings.push(text),
            }
        }
        (lines.concat(), warnings)
    }

    fn batch(utilization: f64, wait_ms: f64) -> BatchDone {
        BatchDone {
            utilization: Some(utilization),
            wait_ms: Some(wait_ms),
            ..BatchDone::default()
        }
    }

    #[test]
    fn thresholds_and_last_batches_are_no_loss() {
        let mut reporter = ProgressReporter::default();
        let tail = BatchDone {
            tail: true,
            ..batch(0.1, 0.0)
        };
        for (batch, line) in [
            (
                batch(0.85, 50.0),
                "100 batches: 85.0 % full, waited 50.0 ms for each",
            ),
            (tail, "200 batches: waited 0.0 ms for each"),
        ] {
            assert_eq!(report(&mut reporter, &batch), (line.to_owned(), vec![]));
        }
    }

    #[test]
    fn packing_is_warned_of_once_for_each_of_two_tiers_and_waits_once() {
        let mut reporter = ProgressReporter::default();
        let mut warnings = |batch| report(&mut reporter, &batch).1.len();
        let counts = [0.84, 0.83, 0.79, 0.5, 0.84, 0.9].map(|full| warnings(batch(full, 0.0)));
        assert_eq!(counts, [1, 0, 1, 0, 0, 0]);
        let found = report(&mut reporter, &batch(1.0, 50.1)).1;
        assert!(found[0].contains("more than 50 ms"), "{found:?}");
        assert!(report(&mut reporter, &batch(1.0, 99.0)).1.is_empty());
    }

    #[test]
    fn the_rate_is_that_of_the_last_hundred() {
        let mut reporter = ProgressReporter::default();
        for (elapsed_s, line) in [
            (1.0, "100 batches: 1000 tokens/s"),
            (3.0, "200 batches: 500 tokens/s"),
        ] {
            let batch = BatchDone {
                tokens: 10,
                elapsed_s: Some(elapsed_s),
                ..BatchDone::default()
            };
            assert_eq!(report(&mut reporter, &batch).0, line);
        }
    }
}
