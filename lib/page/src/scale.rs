//! Numbers and units on axes.

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

/// Returns a unit of time in which `longest_s` has few digits: its name, and its length in seconds.
pub(crate) fn time_unit(longest_s: f64) -> (&'static str, f64) {
    match longest_s {
        _ if longest_s < 300.0 => ("seconds", 1.0),
        _ if longest_s < 3.0 * 3600.0 => ("minutes", 60.0),
        _ if longest_s < 4.0 * 86400.0 => ("hours", 3600.0),
        _ => ("days", 86400.0),
    }
}
