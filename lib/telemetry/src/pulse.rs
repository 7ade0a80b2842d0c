//! What a run says of itself while it works: a line every so many batches, and a warning where something is lost.

use crate::event::BatchDone;
use crate::report::mean::Mean;
use crate::report::packing::PackingCount;
use crate::report::queue::QueueCount;
use crate::report::thresholds::{
    PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW, QUEUE_STARVED_ABOVE_MS,
};
use crate::report::{QueueState, Tier};
use plmkit_contract::plural;

/// Batches between two lines.
const EVERY: u64 = 100;

/// Takes in the batches of a run.
///
/// ```
/// use plmkit_telemetry::event::BatchDone;
/// use plmkit_telemetry::{Pulse, Said};
///
/// let mut pulse = Pulse::default();
/// let batch = |number: u64| BatchDone {
///     batch: number,
///     elapsed_s: Some(0.1 * (number + 1) as f64),
///     wait_ms: Some(0.5),
///     tokens: 16_000,
///     utilization: Some(0.98),
///     ..BatchDone::default()
/// };
/// let said: Vec<Said> = (0..100).flat_map(|number| pulse.add(&batch(number))).collect();
/// let line = "100 batches: 160000 tokens/s, 98.0 % full, waited 0.5 ms for each";
/// assert_eq!(said, [Said::Line(line.to_owned())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    batches: u64,
    tokens: u64,
    elapsed_s: f64,
    /// Elapsed time at the line before.
    since_s: f64,
    packing: PackingCount,
    queue: QueueCount,
    wait_ms: Mean,
    /// The worst packing that was warned of.
    warned_of_packing: Option<Tier>,
    warned_of_waits: bool,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// How it goes.
    Line(String),
    /// What is lost, and what to do.
    Warning(String),
}

impl Pulse {
    /// Takes in a batch, in the order in which they are through. What is warned of is warned of once, and once more where it
    /// gets worse.
    pub fn add(&mut self, batch: &BatchDone) -> Vec<Said> {
        self.batches += 1;
        self.tokens += batch.tokens;
        self.elapsed_s = self.elapsed_s.max(batch.elapsed_s.unwrap_or_default());
        self.packing.add(batch);
        self.queue.add(batch);
        if let Some(wait_ms) = batch.wait_ms {
            self.wait_ms.add(wait_ms);
        }
        if !self.batches.is_multiple_of(EVERY) {
            return Vec::new();
        }
        let mut said = vec![Said::Line(self.line())];
        said.extend(self.warn_of_packing().map(Said::Warning));
        said.extend(self.warn_of_waits().map(Said::Warning));
        *self = Self {
            batches: self.batches,
            elapsed_s: self.elapsed_s,
            since_s: self.elapsed_s,
            warned_of_packing: self.warned_of_packing,
            warned_of_waits: self.warned_of_waits,
            ..Self::default()
        };
        said
    }

    fn line(&self) -> String {
        let seconds = self.elapsed_s - self.since_s;
        let mut parts = Vec::new();
        if seconds > 0.0 {
            parts.push(format!("{:.0} tokens/s", self.tokens as f64 / seconds));
        }
        if let Some(fill) = self.packing.finish().mean_utilization {
            parts.push(format!("{:.1} % full", 100.0 * fill));
        }
        if let Some(wait_ms) = self.wait_ms.mean() {
            parts.push(format!("waited {wait_ms:.1} ms for each"));
        }
        format!("{}: {}", plural(self.batches, "batch"), parts.join(", "))
    }

    fn warn_of_packing(&mut self) -> Option<String> {
        let packing = self.packing.finish();
        let (fill, tier) = packing.mean_utilization.zip(packing.tier)?;
        let (how, least) = match tier {
            Tier::None => return None,
            Tier::Mild => ("not full", PACKING_MILD_BELOW),
            Tier::Critical => ("far from full", PACKING_CRITICAL_BELOW),
        };
        if Some(tier) <= self.warned_of_packing {
            return None;
        }
        self.warned_of_packing = Some(tier);
        Some(format!(
            "batches are {how}: {:.1} % of their token budget; expected at least {:.0} %: pack more sequences at once",
            100.0 * fill,
            100.0 * least
        ))
    }

    fn warn_of_waits(&mut self) -> Option<String> {
        let starved = self.queue.finish().state == Some(QueueState::Starved);
        if !starved || self.warned_of_waits {
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
    fn hundred(pulse: &mut Pulse, utilization: f64, wait_ms: f64, tail: bool) -> Vec<Said> {
        let batch = BatchDone {
            utilization: Some(utilization),
            wait_ms: Some(wait_ms),
            tail,
            ..BatchDone::default()
        };
        (0..EVERY).flat_map(|_| pulse.add(&batch)).collect()
    }

    fn warnings(said: &[Said]) -> Vec<&str> {
        let warning = |said: &'_ Said| matches!(said, Said::Warning(_));
        said.iter()
            .filter(|said| warning(said))
            .map(|said| match said {
                Said::Line(text) | Said::Warning(text) => text.as_str(),
            })
            .collect()
    }

    #[test]
    fn a_run_without_loss_has_a_line_and_no_warning() {
        let mut pulse = Pulse::default();
        assert!(warnings(&hundred(&mut pulse, 0.85, 50.0, false)).is_empty());
        let said = hundred(&mut pulse, 0.85, 0.0, false);
        assert_eq!(
            said,
            [Said::Line(
                "200 batches: 85.0 % full, waited 0.0 ms for each".to_owned()
            )]
        );
    }

    #[test]
    fn packing_is_warned_of_once_for_each_of_two_tiers() {
        let mut pulse = Pulse::default();
        let mut warned = |fill| warnings(&hundred(&mut pulse, fill, 0.0, false)).len();
        assert_eq!(
            [0.84, 0.83, 0.79, 0.5, 0.84, 0.9].map(&mut warned),
            [1, 0, 1, 0, 0, 0]
        );
    }

    #[test]
    fn leftovers_are_no_packing() {
        let said = hundred(&mut Pulse::default(), 0.1, 0.0, true);
        assert_eq!(
            said,
            [Said::Line("100 batches: waited 0.0 ms for each".to_owned())]
        );
    }

    #[test]
    fn a_starved_device_is_warned_of_once() {
        let mut pulse = Pulse::default();
        let said = hundred(&mut pulse, 1.0, 50.1, false);
        assert!(warnings(&said)[0].contains("more than 50 ms"), "{said:?}");
        assert!(warnings(&hundred(&mut pulse, 1.0, 99.0, false)).is_empty());
    }

    #[test]
    fn the_rate_is_that_of_the_last_hundred() {
        let mut pulse = Pulse::default();
        let lines: Vec<Said> = (0..200)
            .flat_map(|number: u64| {
                pulse.add(&BatchDone {
                    tokens: 10,
                    elapsed_s: Some(if number < 100 { 1.0 } else { 3.0 }),
                    ..BatchDone::default()
                })
            })
            .collect();
        let line = |text: &str| Said::Line(text.to_owned());
        assert_eq!(
            lines,
            [
                line("100 batches: 1000 tokens/s"),
                line("200 batches: 500 tokens/s")
            ]
        );
    }
}
