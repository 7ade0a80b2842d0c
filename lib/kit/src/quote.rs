//! Formats external text for one-line messages.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

/// The most characters of an id that a message shows.
const SHOWN: usize = 80;

/// The most characters of a list of external names that a message shows.
pub const LIST_SHOWN: usize = 400;

/// External text, displayed in single quotes, with control characters escaped and long text cut.
///
/// ```
/// use plmkit_kit::Quoted;
/// assert_eq!(Quoted("P1\t2").to_string(), "'P1\\t2'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", one_line(self.0, SHOWN))
    }
}

/// Formats text on one line of at most `most` characters. Escapes control characters, and invisible or direction-changing
/// characters that make a text look like another.
///
/// ```
/// use plmkit_kit::one_line;
/// assert_eq!(one_line("a\nb", 80), "a\\nb");
/// assert_eq!(one_line("abcd", 3), "abc…");
/// assert_eq!(one_line("\0\0\0", 6), "\\u{0}\\u{0}…");
/// ```
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut shown = 0;
    for c in text.chars() {
        if shown >= most {
            line.push('…');
            break;
        }
        if c.is_control() || misleads(c) {
            shown += c.escape_default().len();
            line.extend(c.escape_default());
        } else {
            shown += 1;
            line.push(c);
        }
    }
    line
}

/// Whether a character is a line or paragraph separator, a directional formatting character
/// ([Unicode annex 9](https://unicode.org/reports/tr9/)) or the invisible byte order mark.
fn misleads(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{feff}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a system error as the end of a message: in lower case, without the error number.
pub fn io_text(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "it was cut short".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

/// Returns the message of an error's innermost cause. For a library that cannot be loaded, it names the missing file.
///
/// ```
/// use plmkit_kit::cause;
/// let error = std::io::Error::other("No such file");
/// assert_eq!(cause(&error), "No such file");
/// ```
pub fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Formats a path as the start of a one-line message: control characters are escaped.
pub fn path_text(path: &Path) -> String {
    one_line(&path.to_string_lossy(), usize::MAX)
}

/// Formats a count with its noun, in the singular for one.
///
/// ```
/// use plmkit_kit::plural;
/// assert_eq!([plural(0, "row"), plural(1, "batch"), plural(2, "batch")], ["0 rows", "1 batch", "2 batches"]);
/// ```
pub fn plural<N: Copy + fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = match noun {
        _ if count == N::from(1) => "",
        _ if noun.ends_with("ch") || noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
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
        assert_eq!(Quoted("a\u{202e}b").to_string(), "'a\\u{202e}b'");
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
