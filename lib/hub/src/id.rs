//! Ids and commits of models.

use std::fmt;
use std::path::{Path, PathBuf};

/// `organisation/name@revision`, safe in a URL and in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelId {
    repository: String,
    revision: Option<String>,
}

/// The longest part of an id, as on the Hub.
const LONGEST: usize = 96;

impl ModelId {
    /// Parses an id by the rules of the Hub's own library. A revision is a branch, a tag or a commit.
    ///
    /// ```
    /// use plmkit_hub::ModelId;
    /// assert_eq!(ModelId::parse("some/model@v1").unwrap().to_string(), "some/model@v1");
    /// assert_eq!(ModelId::parse("some/model").unwrap().revision(), "main");
    /// for path in ["model", "/some/model", "./model", "some/deep/model", "some/..", "some/model@../.."] {
    ///     assert_eq!(ModelId::parse(path), None, "{path}");
    /// }
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (organisation, name) = repository.split_once('/')?;
        let known = is_name(organisation)
            && is_name(name)
            && revision.is_none_or(|revision| revision.split('/').all(is_name));
        known.then(|| Self {
            repository: repository.to_owned(),
            revision: revision.map(str::to_owned),
        })
    }

    /// `organisation/name`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The branch, tag or commit; by default `main`.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// The folder of the model in the Hub's cache.
    pub(crate) fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("models--{}", self.repository.replace('/', "--")))
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

/// Whether a text is one part of an id, and as a path stays in its folder.
fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let at_ends = |c: char| matches!(c, '-' | '.');
    (1..=LONGEST).contains(&text.len())
        && text.chars().all(inside)
        && !text.starts_with(at_ends)
        && !text.ends_with(at_ends)
        && !text.contains("..")
        && !text.contains("--")
}

/// Whether a text can be the name of a commit, and so of a folder.
pub(crate) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a revision is the full hash of a commit, so that no branch has to be looked up.
pub(crate) fn is_whole_commit(revision: &str) -> bool {
    revision.len() == 40 && is_commit(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_paths() {
        let too_long = format!("a/{}", "b".repeat(LONGEST + 1));
        for path in [
            "", "/", "a/", "/b", "a//b", "a/b/", "a/b c", "a/b@", "a/b@c@d", "a/b@/c", "a/.b",
            "-a/b", "a/b--c", "ä/b", &too_long,
        ] {
            assert_eq!(ModelId::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_commit_is_hexadecimal() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert!(is_whole_commit(hash) && is_commit(hash));
        assert!(is_commit(&hash[..12]) && !is_whole_commit(&hash[..12]));
        for other in ["", "main", "../../..", "0123456\n"] {
            assert!(!is_commit(other), "{other}");
        }
    }

    #[test]
    fn a_revision_may_have_slashes() {
        let id = ModelId::parse("a_1/b.c-d@refs/pr/1").unwrap();
        assert_eq!((id.repository(), id.revision()), ("a_1/b.c-d", "refs/pr/1"));
        assert_eq!(
            id.folder(Path::new("/cache")),
            Path::new("/cache/models--a_1--b.c-d")
        );
    }
}
