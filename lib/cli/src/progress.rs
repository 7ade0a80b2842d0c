//! Shows progress.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use unit_prefix::NumberPrefix;

use crate::log::SCREEN;

/// The way in which progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, plain lines elsewhere
    Auto,
    /// A bar, redrawn in place
    Bar,
    /// A line now and then, as log files want it
    Plain,
    /// Nothing
    None,
}

/// The interval of plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of a run with a known number of units of work.
#[derive(Debug)]
pub struct ProgressDisplay {
    bar: Option<ProgressBar>,
    /// When the last plain line was written, or the first was begun.
    last: Option<Instant>,
    unit: &'static str,
    total: u64,
    done: u64,
    /// Of these, the units that were done before: they took none of the time.
    done_before: u64,
    start: Instant,
}

impl ProgressDisplay {
    /// Starts to show the progress of `total` units; `unit` is a plural such as `tokens`. `quiet` shows nothing.
    pub fn start(mode: ProgressMode, quiet: bool, unit: &'static str, total: u64) -> Self {
        let start = Instant::now();
        let (has_bar, is_plain) = match mode {
            _ if quiet => (false, false),
            ProgressMode::None => (false, false),
            ProgressMode::Bar => (true, false),
            ProgressMode::Plain => (false, true),
            ProgressMode::Auto => {
                let terminal = io::stderr().is_terminal();
                (terminal, !terminal)
            }
        };
        Self {
            bar: has_bar.then(|| bar(unit, total)),
            last: is_plain.then_some(start),
            unit,
            total,
            done: 0,
            done_before: 0,
            start,
        }
    }

    /// The same, of work of which `units` were done before.
    #[must_use]
    pub fn resumed_at(mut self, units: u64) -> Self {
        (self.done, self.done_before) = (units, units);
        if let Some(bar) = &self.bar {
            bar.set_position(units);
            bar.reset_eta();
        }
        self
    }

    /// Adds `units` to the finished ones.
    pub fn advance(&mut self, units: u64) {
        self.done += units;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
        if self
            .last
            .is_some_and(|last| last.elapsed() >= PLAIN_INTERVAL)
        {
            self.last = Some(Instant::now());
            tracing::info!("{}", self.line(self.start.elapsed()));
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let rate = (self.done - self.done_before) as f64 / elapsed.as_secs_f64();
        let left = self.total.saturating_sub(self.done) as f64 / rate;
        format!(
            "{:.0} % of {} {}, {} {}/s, {:#} left",
            100.0 * self.done as f64 / self.total.max(1) as f64,
            self.total,
            self.unit,
            short(rate),
            self.unit,
            HumanDuration(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)),
        )
    }
}

fn bar(unit: &str, total: u64) -> ProgressBar {
    let bar = SCREEN.add(ProgressBar::new(total));
    let style = format!(
        "{{wide_bar}} {{percent:>3}}% {{human_pos}}/{{human_len}} {{rate}} {unit}/s eta {{eta}}"
    );
    let style =
        ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
    // Writing to the bar does not fail.
    let rate = |state: &ProgressState, to: &mut dyn fmt::Write| {
        _ = to.write_str(&short(state.per_sec()));
    };
    bar.with_style(style.with_key("rate", rate))
}

/// Returns a rate with its prefix: `44.2 k`.
fn short(rate: f64) -> String {
    match NumberPrefix::decimal(rate) {
        NumberPrefix::Standalone(rate) => format!("{rate:.0}"),
        NumberPrefix::Prefixed(prefix, rate) => format!("{rate:.1} {prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_is_as_fast_as_what_it_did_itself() {
        let line = |saved: u64, computed: u64| {
            let mut display = ProgressDisplay::start(ProgressMode::None, false, "tokens", 1000);
            display = display.resumed_at(saved);
            display.advance(computed);
            display.line(Duration::from_secs(10))
        };
        assert_eq!(line(0, 200), "20 % of 1000 tokens, 20 tokens/s, 40s left");
        assert_eq!(line(700, 200), "90 % of 1000 tokens, 20 tokens/s, 5s left");
    }

    #[test]
    fn a_rate_has_a_prefix_and_the_time_left_a_unit() {
        let mut display = ProgressDisplay::start(ProgressMode::None, false, "tokens", 100_000_000);
        display.advance(442_000);
        let line = display.line(Duration::from_secs(10));
        assert_eq!(line, "0 % of 100000000 tokens, 44.2 k tokens/s, 38m left");
    }
}
