//! Points in time as the logs write them.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::time::SystemTime;

use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A UTC time in milliseconds, written as RFC 3339: `2026-01-31T12:00:00.000Z`.
///
/// It says when something was seen, by a clock that may jump. Durations and joins of logs use [`boot_seconds`].
///
/// ```
/// use plmkit_logs::Timestamp;
///
/// let time: Timestamp = "2026-01-31T13:00:00.25+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-01-31T12:00:00.250Z");
/// # Ok::<(), chrono::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Timestamp(DateTime<Utc>);

/// The kernel's name for the time since its last boot; `None` where `/proc` does not show it.
///
/// Two logs with one boot id were written on one machine, between the same two boots.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Seconds since boot, to the millisecond, time asleep included (`CLOCK_BOOTTIME`). This clock is never set.
pub fn boot_seconds() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + (time.tv_nsec / 1_000_000) as f64 / 1000.0
}

impl Timestamp {
    /// The time now.
    pub fn now() -> Self {
        Self::from(Utc::now())
    }

    /// Milliseconds since 1970, for arithmetic.
    pub fn unix_ms(self) -> i64 {
        self.0.timestamp_millis()
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Self(
            time.duration_trunc(TimeDelta::milliseconds(1))
                .unwrap_or(time),
        )
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        DateTime::<Utc>::from(time).into()
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

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = chrono::ParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_equal() {
        let now = Timestamp::now();
        assert_eq!(now.to_string().parse::<Timestamp>(), Ok(now));
        assert_eq!(now.to_string().len(), "2026-01-31T12:00:00.000Z".len());
    }

    #[test]
    fn the_boot_clock_only_goes_forward() {
        let before = boot_seconds();
        assert!(before > 0.0 && boot_seconds() >= before);
        assert_eq!(boot_id(), boot_id());
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert!("2026-01-31 12:00:00".parse::<Timestamp>().is_err());
    }
}
