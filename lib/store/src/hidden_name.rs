//! The names of files that are hidden while they are under construction.

use std::ffi::OsStr;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use xxhash_rust::xxh3::xxh3_64;

/// What the name of a file under construction ends with, or goes on with a number where there are no locks.
pub(crate) const MARK: &str = ".plmkit-tmp";
/// The longest file name.
pub(crate) const NAME_BYTES: usize = 255;

/// The name of something hidden that belongs to the file `name`: `.name` and the mark, of at most 255 bytes with room
/// for a suffix. Where `name` is too long for that, or not text, a hash stands for what is missing of it.
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

/// What makes a name that no other writer uses, where locks cannot.
pub(crate) fn unique_suffix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("-{}-{next}", process::id())
}

/// The name that the file will have whose name is `temporary` while it is under construction, by this run or by a
/// killed one; `None` if it is no such name.
///
/// ```
/// assert_eq!(plmkit_store::under_construction(".a.json.plmkit-tmp"), Some("a.json"));
/// assert_eq!(plmkit_store::under_construction("a.json"), None);
/// ```
pub fn under_construction(temporary: &str) -> Option<&str> {
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
        assert!(hidden(one.as_bytes()).len() + unique_suffix().len() <= NAME_BYTES);
        assert!(under_construction(&hidden(one.as_bytes())).is_some());
        assert!(hidden("ä".repeat(127).as_bytes()).len() <= NAME_BYTES);
        assert_ne!(hidden(b"a\xfe"), hidden(b"a\xff"), "bytes that are no text");
    }
}
