//! Points in time as the logs write them.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// A UTC time in milliseconds, written as RFC 3339: `2026-01-31T12:00:00.000Z`.
///
/// It says when something was seen, by a clock that may jump. Durations come from monotonic clocks.
///
/// ```
/// use plmkit_telemetry::Timestamp;
///
/// let time: Timestamp = "2026-01-31T13:00:00.25+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-01-31T12:00:00.250Z");
/// # Ok::<(), chrono::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Timestamp(DateTime<Utc>);

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
    fn text_that_is_no_time_is_refused() {
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert!("2026-01-31 12:00:00".parse::<Timestamp>().is_err());
    }
}
