//! Numbers on axes.

/// A number in few characters.
///
/// ```
/// use plmkit_page::short;
///
/// let shown = [0.0, 0.25, 12.0, 1500.0, 2_000_000.0].map(short);
/// assert_eq!(shown, ["0", "0.25", "12", "1.5k", "2M"]);
/// ```
pub fn short(number: f64) -> String {
    let (scaled, suffix) = match number.abs() {
        size if size >= 1e12 => (number / 1e12, "T"),
        size if size >= 1e9 => (number / 1e9, "G"),
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = format!("{scaled:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

/// The unit of an axis of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// s
    Seconds,
    /// min
    Minutes,
    /// h
    Hours,
    /// d
    Days,
}

impl TimeUnit {
    /// The one in which a time is a number of few digits.
    pub fn for_seconds(longest_s: f64) -> Self {
        if longest_s < 300.0 {
            Self::Seconds
        } else if longest_s < 3.0 * 3600.0 {
            Self::Minutes
        } else if longest_s < 4.0 * 86400.0 {
            Self::Hours
        } else {
            Self::Days
        }
    }

    /// Its length.
    pub fn seconds(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Minutes => 60.0,
            Self::Hours => 3600.0,
            Self::Days => 86400.0,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Days => "days",
        }
    }
}
