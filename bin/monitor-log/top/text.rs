//! Values as text.

use std::fmt::Display;

use plmkit_telemetry::live::{RunState, RunStatus};

/// An unknown value.
pub(super) const DASH: &str = "-";

pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| DASH.to_owned(), |value| value.to_string())
}

/// Formats a share from 0 to 1 as a percentage.
pub(super) fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{:.0} %", share * 100.0)))
}

/// Formats a number in few digits: `12`, `12.3k`, `1.23M`.
pub(super) fn short(value: Option<f64>) -> String {
    or_dash(value.map(plmkit_page::short))
}

/// Formats a duration: `42 s`, `3:07`, `2:15:00`.
pub(super) fn duration(seconds: f64) -> String {
    let total = seconds.round() as u64;
    let (hours, minutes, rest) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// Formats the state of a run: `running`, `no news for 3:07`.
pub(super) fn state(run: &RunStatus) -> String {
    match run.state {
        RunState::Silent => format!("no news for {}", duration(run.silence_s)),
        state => <&str>::from(state).to_owned(),
    }
}

/// Cuts a text to `width`, to its end or to its start.
pub(super) fn cut(text: &str, width: usize, keeps_end: bool) -> String {
    match text.chars().count().saturating_sub(width) {
        0 => text.to_owned(),
        _ if width == 0 => String::new(),
        more if keeps_end => format!("…{}", text.chars().skip(more + 1).collect::<String>()),
        _ => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_end_or_its_start() {
        let cuts = |end| [0, 1, 3, 5, 9].map(|width| cut("a-471", width, end));
        assert_eq!(cuts(true), ["", "…", "…71", "a-471", "a-471"]);
        assert_eq!(cuts(false), ["", "…", "a-…", "a-471", "a-471"]);
    }

    #[test]
    fn durations_grow_from_seconds_to_hours() {
        let found = [41.6, 59.6, 187.0, 8100.0].map(duration);
        assert_eq!(found, ["42 s", "1:00", "3:07", "2:15:00"]);
    }
}
