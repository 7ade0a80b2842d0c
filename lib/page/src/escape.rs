//! Text as text.

/// The text such that HTML shows it as it is, in content and in quoted attributes. What cannot be shown, or would change
/// how other text is shown (control characters, overrides of the direction of writing), is a replacement character.
///
/// ```
/// assert_eq!(plmkit_page::escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
/// assert_eq!(plmkit_page::escape("a\u{202e}b\0\tc"), "a\u{fffd}b\u{fffd}\tc");
/// ```
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(character),
            // Nor what no XML may hold: pages are read by programs too.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            _ if character.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}
