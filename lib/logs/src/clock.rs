//! Points in time as the logs write them.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use rustix::time::{ClockId, clock_gettime};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A UTC time in milliseconds, written as RFC 3339: `2026-01-31T12:00:00.000Z`.
///
/// It comes from the wall clock, which may jump. Durations and joins of logs use [`boot_seconds`].
///
/// ```
/// use plmkit_logs::Timestamp;
///
/// let time: Timestamp = "2026-01-31T13:00:00.25+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-01-31T12:00:00.250Z");
/// # Ok::<(), chrono::ParseError>(())
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    SerializeDisplay,
    DeserializeFromStr,
)]
pub struct Timestamp(DateTime<Utc>);

/// Returns the kernel's id of the current boot; `None` if `/proc` does not show it.
///
/// Two logs with one boot id were written on one machine, between the same two boots.
pub fn boot_id() -> Option<String> {
    kernel_text("/proc/sys/kernel/random/boot_id")
}

/// Returns the name of this machine; `None` if `/proc` does not show it.
pub fn host_name() -> Option<String> {
    kernel_text("/proc/sys/kernel/hostname")
}

fn kernel_text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the seconds since boot, to the millisecond, including time asleep (`CLOCK_BOOTTIME`). This clock never jumps.
pub fn boot_seconds() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + (time.tv_nsec / 1_000_000) as f64 / 1000.0
}

/// Returns the CPU time of this process, over all of its threads.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}

impl Timestamp {
    /// Returns the current time.
    pub fn now() -> Self {
        Self::from(Utc::now())
    }

    /// Returns the time in a [format of `strftime`](chrono::format::strftime).
    pub fn format(self, format: &str) -> String {
        self.0.format(format).to_string()
    }

    /// Returns the milliseconds since 1970.
    pub fn unix_ms(self) -> i64 {
        self.0.timestamp_millis()
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        let truncated = time.duration_trunc(TimeDelta::milliseconds(1));
        Self(truncated.unwrap_or(time))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(DateTime::parse_from_rfc3339(text)?.to_utc().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_time_is_read_back_equal_and_other_text_is_refused() {
        let now = Timestamp::now();
        assert_eq!(now.to_string().parse::<Timestamp>(), Ok(now));
        assert_eq!(now.to_string().len(), "2026-01-31T12:00:00.000Z".len());
        for text in ["yesterday", "2026-01-31 12:00:00"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
