//! Values as text.

use std::fmt::Display;

use plmkit_telemetry::live::{RunState, RunStatus};
use plmkit_telemetry::report::QueueState;

/// What a value that is not known looks like: no 0.
pub(super) const DASH: &str = "-";

pub(super) fn or_dash(value: Option<&impl Display>) -> String {
    value.map_or_else(|| DASH.to_owned(), ToString::to_string)
}

/// A share from 0 to 1 as a percentage.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || DASH.to_owned(),
        |share| format!("{:.0} %", share * 100.0),
    )
}

/// Mebibytes as gibibytes.
pub(super) fn gib(mib: Option<u64>) -> String {
    mib.map_or_else(
        || DASH.to_owned(),
        |mib| format!("{:.1}", mib as f64 / 1024.0),
    )
}

/// A number with three digits: `12`, `12.3 k`, `1.23 M`.
pub(super) fn short(value: Option<f64>) -> String {
    let Some(value) = value else {
        return DASH.to_owned();
    };
    let (scaled, unit) = match value {
        _ if value >= 999.5e6 => (value / 1e9, " G"),
        _ if value >= 999.5e3 => (value / 1e6, " M"),
        _ if value >= 999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled {
        _ if unit.is_empty() && scaled >= 10.0 || scaled >= 99.95 => 0,
        _ if scaled >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{unit}")
}

/// A duration: `42 s`, `3:07`, `2:15:00`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// What a run is doing: `running`, `silent for 3:07`.
pub(super) fn state(run: &RunStatus) -> String {
    match run.state {
        RunState::Silent => {
            format!("silent for {}", duration(run.silence_s))
        }
        state => state.name().to_owned(),
    }
}

/// The state of a run's queue: the recent one, or that of the whole run where it has ended.
pub(super) fn queue(run: &RunStatus) -> &'static str {
    match run.recent.queue.or(run.summary.queue.state) {
        None => DASH,
        Some(QueueState::Full) => "full",
        Some(QueueState::Normal) => "normal",
        Some(QueueState::Starved) => "starved",
    }
}

/// Batches done of those to do: `5/10`.
pub(super) fn batches(run: &RunStatus) -> String {
    format!(
        "{}/{}",
        run.progress.batches,
        or_dash(run.progress.batches_total.as_ref())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.5, "0.50"),
            (9.0, "9.00"),
            (12.3, "12"),
            (999.0, "999"),
            (999.6, "1.00 k"),
            (12_340.0, "12.3 k"),
            (999_499.0, "999 k"),
            (999_600.0, "1.00 M"),
            (123e6, "123 M"),
            (4.2e9, "4.20 G"),
        ] {
            assert_eq!(short(Some(value)), text, "{value}");
        }
        assert_eq!(
            (short(None), percent(None), gib(None)),
            ("-".into(), "-".into(), "-".into())
        );
    }

    #[test]
    fn durations_grow_from_seconds_to_hours() {
        assert_eq!(duration(41.6), "42 s");
        assert_eq!(duration(59.6), "1:00");
        assert_eq!(duration(187.0), "3:07");
        assert_eq!(duration(8100.0), "2:15:00");
    }
}
