//! Escaping of text.

/// Escapes text for HTML content and quoted attributes. Control characters and overrides of the writing direction become
/// replacement characters.
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
            // XML does not allow U+FFFE and U+FFFF; programs read pages too.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            _ if character.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}
