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
    display: Display,
    unit: &'static str,
    total: u64,
    done: u64,
    /// Of these, the units that were done before: they took none of the time.
    done_before: u64,
    start: Instant,
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    Plain { last: Instant },
    None,
}

impl ProgressDisplay {
    /// Starts to show the progress of `total` units; `unit` is a plural such as `tokens`. `quiet` shows nothing.
    pub fn start(mode: ProgressMode, quiet: bool, unit: &'static str, total: u64) -> Self {
        let terminal = io::stderr().is_terminal();
        let start = Instant::now();
        let display = match mode {
            _ if quiet => Display::None,
            ProgressMode::None => Display::None,
            ProgressMode::Plain => Display::Plain { last: start },
            ProgressMode::Auto if !terminal => Display::Plain { last: start },
            ProgressMode::Auto | ProgressMode::Bar => {
                let bar = SCREEN.add(ProgressBar::new(total));
                let style = format!(
                    "{{wide_bar}} {{percent:>3}}% {{human_pos}}/{{human_len}} {{rate}} {unit}/s eta {{eta}}"
                );
                let style = ProgressStyle::with_template(&style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                // Writing to the bar does not fail.
                let rate = |state: &ProgressState, to: &mut dyn fmt::Write| {
                    _ = to.write_str(&short(state.per_sec()));
                };
                bar.set_style(style.with_key("rate", rate));
                Display::Bar(bar)
            }
        };
        Self {
            display,
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
        if let Display::Bar(bar) = &self.display {
            bar.set_position(units);
            bar.reset_eta();
        }
        self
    }

    /// Adds `units` to the finished ones.
    pub fn advance(&mut self, units: u64) {
        self.done += units;
        match &mut self.display {
            Display::Bar(bar) => bar.set_position(self.done),
            Display::Plain { last } if last.elapsed() >= PLAIN_INTERVAL => {
                *last = Instant::now();
                tracing::info!("{}", self.line(self.start.elapsed()));
            }
            Display::Plain { .. } | Display::None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Display::Bar(bar) = self.display {
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
