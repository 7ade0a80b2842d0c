//! Shows progress.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
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

/// The progress of a run with a known number of units of work, in one stage after the other.
#[derive(Debug)]
pub struct ProgressDisplay {
    bar: Option<ProgressBar>,
    /// When the last plain line was written, or the first was begun.
    last: Option<Instant>,
    stages: Vec<Stage>,
    /// The place of the stage at work, and when it began or went on.
    at: usize,
    since: Instant,
}

/// A stage of a run.
#[derive(Debug, Default)]
struct Stage {
    name: &'static str,
    /// A plural such as `tokens`.
    unit: &'static str,
    total: u64,
    done: u64,
    /// Of these, the units that were done before: they took none of the time.
    done_before: u64,
    /// How long it was at work before the clock ran last.
    time: Duration,
    /// The place of a stage with the same rate, as long as this one has none.
    like: Option<usize>,
}

impl ProgressDisplay {
    /// Starts to show the progress of `total` units; `unit` is a plural such as `tokens`. `quiet` shows nothing.
    pub fn start(mode: ProgressMode, quiet: bool, unit: &'static str, total: u64) -> Self {
        Self::of_stages(mode, quiet, &[("", unit, total)])
    }

    /// Starts to show the progress of a run of several stages, each with its name, unit and total. The first one begins. A run without units
    /// shows that it is at work.
    pub fn of_stages(
        mode: ProgressMode,
        quiet: bool,
        stages: &[(&'static str, &'static str, u64)],
    ) -> Self {
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
        let new = |&(name, unit, total)| Stage {
            name,
            unit,
            total,
            ..Stage::default()
        };
        let mut display = Self {
            bar: has_bar.then(|| bar(stages)),
            last: is_plain.then_some(start),
            stages: stages.iter().map(new).collect(),
            at: 0,
            since: start,
        };
        display.begin(0);
        display
    }

    /// The same, of work of which `units` of the first stage were done before.
    #[must_use]
    pub fn resumed_at(mut self, units: u64) -> Self {
        let first = &mut self.stages[0];
        (first.done, first.done_before) = (units, units);
        if let Some(bar) = &self.bar {
            bar.set_position(units);
        }
        self
    }

    /// The same, where a stage is as fast as the first.
    #[must_use]
    pub fn like_first(mut self, stage: usize) -> Self {
        self.stages[stage].like = Some(0);
        self
    }

    /// Begins a stage, or goes on with it.
    pub fn begin(&mut self, stage: usize) {
        let (now, at) = (Instant::now(), self.at);
        self.stages[at].time += now.duration_since(self.since);
        (self.at, self.since) = (stage, now);
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.stages[stage].name);
        }
    }

    /// Adds `units` to the finished ones of the stage. What exceeds its total is none.
    pub fn advance(&mut self, units: u64) {
        let elapsed = self.since.elapsed();
        let stage = &mut self.stages[self.at];
        stage.done = (stage.done + units).min(stage.total);
        if let Some(bar) = &self.bar {
            bar.set_position(self.stages.iter().map(|stage| stage.done).sum());
            bar.set_message(self.speed(elapsed));
        }
        if self
            .last
            .is_some_and(|last| last.elapsed() >= PLAIN_INTERVAL)
        {
            self.last = Some(Instant::now());
            tracing::info!("{}", self.line(elapsed));
        }
    }

    /// The units a second of a stage, once there is a rate.
    fn rate(&self, stage: usize, elapsed: Duration) -> Option<f64> {
        let known = &self.stages[stage];
        let own = if stage == self.at {
            elapsed
        } else {
            Duration::ZERO
        };
        let (done, time) = (known.done - known.done_before, known.time + own);
        if done > 0 && !time.is_zero() {
            return Some(done as f64 / time.as_secs_f64());
        }
        known.like.and_then(|like| self.rate(like, elapsed))
    }

    /// The rate of the stage at work, the time that is left, and the first stage of which that is not known.
    fn speed(&self, elapsed: Duration) -> String {
        let Some(rate) = self.rate(self.at, elapsed) else {
            return String::new();
        };
        let (mut seconds, mut unknown) = (0.0, None);
        for (place, stage) in self.stages.iter().enumerate() {
            let left = stage.total.saturating_sub(stage.done);
            match self.rate(place, elapsed) {
                Some(rate) => seconds += left as f64 / rate,
                None if left > 0 => unknown = unknown.or(Some(stage.name)),
                None => {}
            }
        }
        let left = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let then = unknown.map(|name| format!(", then {name}"));
        format!(
            "{} {}/s, {:#} left{}",
            short(rate),
            self.stages[self.at].unit,
            HumanDuration(left),
            then.unwrap_or_default()
        )
    }

    fn line(&self, elapsed: Duration) -> String {
        let stage = &self.stages[self.at];
        let name = match stage.name {
            "" => String::new(),
            name => format!("{name}: "),
        };
        let share = 100.0 * stage.done as f64 / stage.total.max(1) as f64;
        let (total, unit, speed) = (stage.total, stage.unit, self.speed(elapsed));
        let line = format!("{name}{share:.0} % of {total} {unit}, {speed}");
        line.trim_end_matches(", ").to_owned()
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line below the bar that says what a device does.
#[derive(Debug)]
pub struct DeviceLine(ProgressBar);

impl DeviceLine {
    /// Shows the line of the device at a place, where a bar is shown.
    pub fn add(display: &ProgressDisplay, place: usize) -> Option<Self> {
        display.bar.as_ref()?;
        let style = ProgressStyle::with_template("{prefix}: {msg}");
        let line = ProgressBar::new_spinner().with_prefix(format!("device {place}"));
        let line = line.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Some(Self(SCREEN.add(line)))
    }

    /// Says what the device does, and how many tokens it has embedded in some time.
    pub fn say(&self, what: &str, tokens: u64, time: Duration) {
        let rate = short(tokens as f64 / time.as_secs_f64());
        self.0.set_message(format!("{what}, {rate} tokens/s"));
    }
}

impl Drop for DeviceLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar(stages: &[(&str, &str, u64)]) -> ProgressBar {
    let total = stages.iter().map(|(.., total)| total).sum();
    let style = match stages {
        _ if total == 0 => "{spinner} {prefix}, {elapsed}".to_owned(),
        [(_, unit, _)] => {
            format!("{{wide_bar}} {{percent:>3}}% {{human_pos}}/{{human_len}} {unit}, {{msg}}")
        }
        _ => "{prefix} {wide_bar} {percent:>3}% {msg}".to_owned(),
    };
    let style = ProgressStyle::with_template(&style);
    let bar = SCREEN.add(ProgressBar::new(total));
    if total == 0 {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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

    #[test]
    fn stages_have_rates_of_their_own_and_no_time_is_told_before_there_is_one() {
        let stages = [
            ("embedding", "tokens", 1000),
            ("checking", "tokens", 100),
            ("reading", "rows", 20),
        ];
        let mut display = ProgressDisplay::of_stages(ProgressMode::None, false, &stages);
        let at = Duration::from_secs(10);
        assert_eq!(display.line(at), "embedding: 0 % of 1000 tokens");
        display.advance(500);
        let line = "embedding: 50 % of 1000 tokens, 50 tokens/s, 10s left, then checking";
        assert_eq!(display.line(at), line);
        display = display.like_first(1);
        let line = "embedding: 50 % of 1000 tokens, 50 tokens/s, 12s left, then reading";
        assert_eq!(display.line(at), line);
        display.advance(600);
        display.begin(2);
        (display.stages[0].time, display.stages[1].done) = (at, 100);
        display.advance(10);
        let line = "reading: 50 % of 20 rows, 1 rows/s, 10s left";
        assert_eq!(display.line(at), line);
    }
}
