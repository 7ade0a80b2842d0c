//! Numbers and durations in few characters.

/// Returns a number in few characters.
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

/// Returns a duration in few characters.
///
/// ```
/// use plmkit_page::duration;
///
/// let shown = [0.25, 41.6, 187.0, 8100.0].map(duration);
/// assert_eq!(shown, ["0.2 s", "41.6 s", "3.1 min", "2.2 h"]);
/// ```
pub fn duration(seconds: f64) -> String {
    match seconds {
        3600.0.. => format!("{:.1} h", seconds / 3600.0),
        60.0.. => format!("{:.1} min", seconds / 60.0),
        _ => format!("{seconds:.1} s"),
    }
}
