//! Text from an input, made fit for a one-line message.

use std::fmt;

/// Characters of an id that a message shows.
const SHOWN: usize = 80;

/// Shows an id or other text of an input in single quotes, with control characters escaped and long text cut.
///
/// ```
/// use plmkit_sequence::Quoted;
/// assert_eq!(Quoted("P1\t2").to_string(), "'P1\\t2'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        f.write_str("'")?;
        for shown in chars.by_ref().take(SHOWN) {
            if shown.is_control() {
                write!(f, "{}", shown.escape_default())?;
            } else {
                write!(f, "{shown}")?;
            }
        }
        f.write_str(if chars.next().is_some() { "…'" } else { "'" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_on_one_short_line() {
        assert_eq!(Quoted("sp|P1|A/B").to_string(), "'sp|P1|A/B'");
        assert_eq!(
            Quoted("a\0b\x1b[31m\n").to_string(),
            "'a\\u{0}b\\u{1b}[31m\\n'"
        );
        assert_eq!(
            Quoted(&"ä".repeat(SHOWN)).to_string(),
            format!("'{}'", "ä".repeat(SHOWN))
        );
        assert_eq!(
            Quoted(&"ä".repeat(SHOWN + 1)).to_string(),
            format!("'{}…'", "ä".repeat(SHOWN))
        );
    }
}
