//! Time intervals on the command line.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(10);

const LONGEST: Duration = Duration::from_hours(24);

/// Parses an interval from 10 ms to 24 h: `500ms`, `1s`, `0.5s`, `2m`, `3h`.
pub fn interval(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a number with a unit: 500ms, 1s, 2m, 3h".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number with a unit: 500ms, 1s, 2m, 3h")?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|interval| (SHORTEST..=LONGEST).contains(interval))
        .ok_or_else(|| "expected 10ms to 24h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(interval("24h"), Ok(LONGEST));
        for text in [
            "", "1", "s", "1x", "1 s", "-1s", "1e3s", "nans", "infs", "1ms", "0s", "1441m",
        ] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
