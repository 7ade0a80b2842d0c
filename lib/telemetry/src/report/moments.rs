//! Times as whole numbers of microseconds.

use std::ops::Range;

use plmkit_logs::Timestamp;

/// No clock of a machine counts further: about 30 years.
const MAX_S: f64 = 1e9;

/// The year 5138: sums and multiples of times do not overflow.
const MAX_UNIX_MS: i64 = 100_000_000_000_000;

/// Returns seconds as whole microseconds. Sums of these are exact.
pub(super) fn micros(seconds: f64) -> i64 {
    (seconds.clamp(0.0, MAX_S) * 1e6).round() as i64
}

/// Returns microseconds as seconds.
pub(super) fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// Returns the time of day in microseconds since 1970.
pub(super) fn time_of_day_us(time: Timestamp) -> i64 {
    time.unix_ms().clamp(0, MAX_UNIX_MS) * 1000
}

/// Extends a span to a time, if it is known.
pub(super) fn extend(span: &mut Option<Range<i64>>, time: Option<i64>) {
    let Some(time) = time else { return };
    let span = span.get_or_insert(time..time);
    *span = span.start.min(time)..span.end.max(time);
}
