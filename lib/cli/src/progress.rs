//! Shows progress.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

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
                    "{{wide_bar}} {{percent:>3}}% {{human_pos}}/{{human_len}} {unit} {{per_sec}} eta {{eta}}"
                );
                bar.set_style(
                    ProgressStyle::with_template(&style)
                        .unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                Display::Bar(bar)
            }
        };
        Self {
            display,
            unit,
            total,
            done: 0,
            start,
        }
    }

    /// Adds `units` to the finished ones.
    pub fn advance(&mut self, units: u64) {
        self.done += units;
        match &mut self.display {
            Display::Bar(bar) => bar.set_position(self.done),
            Display::Plain { last } if last.elapsed() >= PLAIN_INTERVAL => {
                *last = Instant::now();
                tracing::info!("{}", self.line());
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

    fn line(&self) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let rate = self.done as f64 / seconds;
        let left = self.total.saturating_sub(self.done) as f64 / rate;
        format!(
            "{:.0} % of {} {}, {rate:.0} {}/s, {left:.0} s left",
            100.0 * self.done as f64 / self.total.max(1) as f64,
            self.total,
            self.unit,
            self.unit,
        )
    }
}
