//! Hidden names of temporary files.

use std::ffi::OsStr;

use xxhash_rust::xxh3::xxh3_64;

/// The end of a temporary name. Earlier versions wrote a suffix behind it where there are no locks.
pub(crate) const MARK: &str = ".plmkit-tmp";
/// The most bytes of a file name.
pub(crate) const NAME_BYTES: usize = 255;

/// Returns the hidden name `.{name}{mark}`, of at most 255 bytes with room for a suffix. A name that is too long or not UTF-8 is
/// cut and gets a hash.
///
/// ```
/// use std::ffi::OsStr;
/// assert_eq!(plmkit_store::hidden_name(OsStr::new("a.json"), ".lock"), ".a.json.lock");
/// ```
pub fn hidden_name(name: &OsStr, mark: &str) -> String {
    const SUFFIX: usize = 32;
    const HASH: usize = 17;
    let room = NAME_BYTES - 1 - mark.len() - SUFFIX;
    if let Some(name) = name.to_str()
        && name.len() <= room
    {
        return format!(".{name}{mark}");
    }
    let hash = xxh3_64(name.as_encoded_bytes());
    let text = name.to_string_lossy();
    let beginning = &text[..text.floor_char_boundary(room - HASH)];
    format!(".{beginning}-{hash:016x}{mark}")
}

/// Returns the final name of a file with the temporary name `temporary`; `None` if it is not a temporary name.
///
/// ```
/// assert_eq!(plmkit_store::strip_temporary_suffix(".a.json.plmkit-tmp"), Some("a.json"));
/// assert_eq!(plmkit_store::strip_temporary_suffix("a.json"), None);
/// ```
pub fn strip_temporary_suffix(temporary: &str) -> Option<&str> {
    let (name, _suffix) = temporary.strip_prefix('.')?.split_once(MARK)?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn long_names_stay_apart_and_fit() {
        let hidden = |name: &[u8]| hidden_name(OsStr::from_bytes(name), MARK);
        let (one, other) = ("x".repeat(254) + "1", "x".repeat(254) + "2");
        assert_ne!(hidden(one.as_bytes()), hidden(other.as_bytes()));
        assert!(hidden(one.as_bytes()).len() <= NAME_BYTES);
        assert!(strip_temporary_suffix(&hidden(one.as_bytes())).is_some());
        assert!(hidden("ä".repeat(127).as_bytes()).len() <= NAME_BYTES);
        assert_ne!(hidden(b"a\xfe"), hidden(b"a\xff"), "bytes that are no text");
    }
}
