//! Commits: the names of snapshots.

/// Whether a text can be the name of a commit, and so of a folder.
pub(crate) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a revision is the whole hash of a commit: no branch has to be looked up.
pub(crate) fn is_whole_commit(revision: &str) -> bool {
    revision.len() == 40 && is_commit(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_hexadecimal() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert!(is_whole_commit(hash) && is_commit(hash));
        assert!(is_commit(&hash[..12]) && !is_whole_commit(&hash[..12]));
        for other in ["", "main", "../../..", "0123456\n"] {
            assert!(!is_commit(other), "{other}");
        }
    }
}
