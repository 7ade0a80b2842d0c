//! Progress messages of a run: how fast it goes, how full its batches are, and what share of the time the device waits.

use plmkit_kit::plural;

use crate::event::Totals;
use crate::thresholds::{PACKING_MILD_BELOW, QUEUE_STARVED_ABOVE};
use crate::{QueueState, Stretch, Tier};

/// Batches between two lines.
const EVERY_BATCHES: u64 = 100;

/// Seconds between two lines of a run with slow batches.
const EVERY_S: f64 = 60.0;

/// Reports on the totals of a run every 100 batches or 60 s, and sums up at its end.
///
/// ```
/// use plmkit_logs::event::{BatchDone, Totals};
/// use plmkit_logs::ProgressReporter;
///
/// let batch = Totals::from(&BatchDone {
///     wait_ms: Some(0.5),
///     tokens: 16_000,
///     token_budget: Some(16_320),
///     ..BatchDone::default()
/// });
/// let (mut reporter, mut total) = (ProgressReporter::default(), Totals::default());
/// let messages = (1..=100).filter_map(|number| {
///     total = total.clone() + batch.clone();
///     reporter.add(&total, 0.1 * f64::from(number))
/// });
/// let messages: Vec<_> = messages.collect();
/// let line = "100 batches: 160000 tokens/s, 98.0 % full (ok), waited 0.5 % of the time (queue full)";
/// assert_eq!(messages, [(line.to_owned(), vec![])]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProgressReporter {
    /// The totals and the elapsed seconds at the last line.
    last: (Totals, f64),
    /// How bad packing and waits were when they were warned of last.
    warned: [Tier; 2],
}

impl ProgressReporter {
    /// Takes the totals after a batch, and the elapsed seconds. Returns a line of progress, if it is time, and warnings of a loss of
    /// throughput, with advice. Each warning comes once, and once more if it gets worse. One that is critical is an error.
    pub fn add(&mut self, total: &Totals, elapsed_s: f64) -> Option<(String, Vec<(Tier, String)>)> {
        let recent = Stretch::between((&self.last.0, self.last.1), (total, elapsed_s));
        if recent.batches < EVERY_BATCHES && recent.elapsed_s < EVERY_S {
            return None;
        }
        self.last = (total.clone(), elapsed_s);
        let rate = recent.tokens_per_s();
        let mut figures = Vec::from_iter(rate.map(|rate| format!("{rate:.0} tokens/s")));
        let (tiers, warnings) = self.judge(&recent, elapsed_s);
        figures.extend(tiers);
        let batches = plural(total.batches, "batch");
        let line = match figures.join(", ") {
            figures if figures.is_empty() => batches,
            figures => format!("{batches}: {figures}"),
        };
        Some((line, warnings))
    }

    /// Returns how full the batches of the whole run were and how long its devices waited, as far as it is known, and warnings
    /// of them. The run took `elapsed_s`.
    pub fn finish(mut self, total: &Totals, elapsed_s: f64) -> (Vec<String>, Vec<(Tier, String)>) {
        let all = Stretch::between((&Totals::default(), 0.0), (total, elapsed_s));
        self.judge(&all, elapsed_s)
    }

    /// Returns what is known of a stretch of a run that takes `run_s` so far, and new warnings.
    fn judge(&mut self, stretch: &Stretch, run_s: f64) -> (Vec<String>, Vec<(Tier, String)>) {
        let (mut figures, mut warnings) = (Vec::new(), Vec::new());
        if let Some(packing) = stretch.mean_fill {
            let percent = 100.0 * packing;
            let tier = Tier::of_packing(packing);
            figures.push(format!("{percent:.1} % full ({tier})"));
            if tier > self.warned[0] {
                self.warned[0] = tier;
                let least = 100.0 * PACKING_MILD_BELOW;
                let text = format!(
                    "batches are {percent:.1} % full; expected at least {least:.0} %: pack more sequences at once"
                );
                warnings.push((tier, text));
            }
        }
        if let Some(waited) = stretch.wait_share() {
            let percent = 100.0 * waited;
            let queue = QueueState::of(waited);
            figures.push(format!("waited {percent:.1} % of the time (queue {queue})"));
            // Every run waits for its first read, which decides about a short one.
            let tier = Tier::of_idle(waited, run_s);
            if let Some(tier) = tier.filter(|tier| *tier > self.warned[1]) {
                self.warned[1] = tier;
                let most = 100.0 * QUEUE_STARVED_ABOVE;
                let text = format!(
                    "the device waited for batches {percent:.1} % of the time; expected at most {most:.0} %: raise --prefetch or read from a faster disk"
                );
                // Only all of the idle time is critical: the report tells of it.
                warnings.push((Tier::Mild, text));
            }
        }
        (figures, warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BatchDone;

    /// Batches of `step_s` each.
    struct Case {
        reporter: ProgressReporter,
        total: Totals,
        elapsed_s: f64,
    }

    impl Case {
        fn new() -> Self {
            Self {
                reporter: ProgressReporter::default(),
                total: Totals::default(),
                elapsed_s: 0.0,
            }
        }

        /// The messages about `count` batches.
        fn add(&mut self, count: u64, step_s: f64, batch: &BatchDone) -> Vec<String> {
            let mut messages = Vec::new();
            for _ in 0..count {
                self.elapsed_s += step_s;
                self.total = self.total.clone() + Totals::from(batch);
                let told = self.reporter.add(&self.total, self.elapsed_s);
                if let Some((line, warnings)) = told {
                    messages.push(line);
                    let warnings = warnings.iter();
                    messages.extend(warnings.map(|(tier, text)| format!("{tier}: {text}")));
                }
            }
            messages
        }
    }

    fn batch(fill: f64, wait_ms: f64) -> BatchDone {
        BatchDone {
            tokens: (1000.0 * fill) as u64,
            token_budget: Some(1000),
            wait_ms: Some(wait_ms),
            ..BatchDone::default()
        }
    }

    #[test]
    fn thresholds_and_last_batches_are_no_loss() {
        let mut case = Case::new();
        let line =
            "60 batches: 850 tokens/s, 85.0 % full (ok), waited 5.0 % of the time (queue normal)";
        assert_eq!(case.add(60, 1.0, &batch(0.85, 50.0)), [line]);
        let tail = BatchDone {
            tail: true,
            ..batch(0.1, 0.0)
        };
        let line = "120 batches: 100 tokens/s, waited 0.0 % of the time (queue full)";
        assert_eq!(case.add(60, 1.0, &tail), [line]);
    }

    #[test]
    fn a_line_comes_after_a_hundred_batches_or_sixty_seconds_and_tiers_at_the_end() {
        let mut fast = Case::new();
        let lines = [
            "100 batches: 100000 tokens/s, 100.0 % full (ok), waited 0.0 % of the time (queue full)",
            "200 batches: 100000 tokens/s, 100.0 % full (ok), waited 0.0 % of the time (queue full)",
        ];
        assert_eq!(fast.add(250, 0.01, &batch(1.0, 0.0)), lines);
        let mut slow = Case::new();
        let line =
            "3 batches: 45 tokens/s, 90.0 % full (ok), waited 0.0 % of the time (queue full)";
        assert_eq!(slow.add(4, 20.0, &batch(0.9, 0.0)), [line]);
        let tiers = ["90.0 % full (ok)", "waited 0.0 % of the time (queue full)"];
        assert_eq!(slow.reporter.finish(&slow.total, 100.0).0, tiers);
        assert_eq!(
            ProgressReporter::default().finish(&Totals::default(), 1.0),
            (vec![], vec![])
        );
    }

    #[test]
    fn packing_and_waits_are_warned_of_once_for_each_of_two_tiers() {
        let mut case = Case::new();
        let mut warning = |full, wait_ms| {
            let messages = case.add(60, 1.0, &batch(full, wait_ms));
            let tiers = ["mild", "critical"];
            tiers.map(|tier| {
                messages
                    .iter()
                    .filter(|text| text.starts_with(tier))
                    .count()
            })
        };
        let counts = [0.84, 0.83, 0.79, 0.5, 0.84, 0.9].map(|full| warning(full, 0.0));
        let [none, mild, critical] = [[0, 0], [1, 0], [0, 1]];
        assert_eq!(counts, [mild, none, critical, none, none, none]);
        let counts = [50.0, 51.0, 200.0, 201.0, 900.0, 51.0].map(|wait_ms| warning(1.0, wait_ms));
        assert_eq!(counts, [none, mild, none, mild, none, none]);
    }

    /// One long wait leaves the device without work for most of a run whose other batches are all ready.
    #[test]
    fn waits_count_by_time_and_a_short_run_warns_at_its_end() {
        let mut case = Case::new();
        assert!(case.add(9, 0.1, &batch(1.0, 0.0)).is_empty());
        assert!(case.add(1, 9.1, &batch(1.0, 9000.0)).is_empty());
        let (tiers, warnings) = case.reporter.finish(&case.total, 10.0);
        let waited = "waited 90.0 % of the time (queue starved)";
        assert_eq!(tiers, ["100.0 % full (ok)", waited]);
        let expected = "the device waited for batches 90.0 % of the time; expected at most 5 %: raise --prefetch or read from \
                        a faster disk";
        assert_eq!(warnings, [(Tier::Mild, expected.to_owned())]);
        // Half of a run of a second is the first read.
        let mut short = Case::new();
        short.add(1, 1.0, &batch(1.0, 500.0));
        assert_eq!(short.reporter.finish(&short.total, 1.0).1, []);
    }
}
