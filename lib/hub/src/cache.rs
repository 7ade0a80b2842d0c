//! The Hub's cache: `models--organisation--name/{blobs, refs, snapshots}`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plmkit_contract::{Stop, path_text};

use crate::commit::{is_commit, is_whole_commit};
use crate::content::Verified;
use crate::files;
use crate::{HubError, ModelId, Settings};

/// What the cache lacks of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The folder that was looked at.
    pub(crate) folder: PathBuf,
    /// The file that is not in it; none where the folder itself is not there.
    pub(crate) file: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = path_text(&self.folder);
        match &self.file {
            None => write!(f, "not in the Hub's cache ({folder})"),
            Some(file) => write!(f, "not whole in the Hub's cache ({folder}: no {file})"),
        }
    }
}

/// The snapshot of a model, or what it lacks.
pub(crate) fn find(
    id: &ModelId,
    settings: &Settings,
) -> Result<Result<PathBuf, Missing>, HubError> {
    let model = id.folder(settings.cache.as_deref().ok_or(HubError::NoCache)?);
    let Some(commit) = commit(&model, id.revision())? else {
        return Ok(Err(Missing {
            folder: model,
            file: None,
        }));
    };
    let snapshot = model.join("snapshots").join(commit);
    if !snapshot.is_dir() {
        return Ok(Err(Missing {
            folder: snapshot,
            file: None,
        }));
    }
    Ok(match files::needed(&snapshot) {
        Ok(_) => Ok(snapshot),
        Err(missing) => Err(Missing {
            folder: snapshot,
            file: Some(missing),
        }),
    })
}

/// Compares the files of a snapshot that a loader takes with the hashes that are their names.
pub(crate) fn check(
    id: &ModelId,
    settings: &Settings,
    snapshot: &Path,
    stop: &Stop,
) -> Result<(), HubError> {
    let cache = settings.cache.as_deref().ok_or(HubError::NoCache)?;
    let mut verified = Verified::open(cache, &id.folder(cache));
    for name in files::needed(snapshot).unwrap_or_default() {
        verified.check(&snapshot.join(name), stop)?;
    }
    Ok(())
}

/// The commit that a branch or tag was at when it was last fetched.
fn commit(model: &Path, revision: &str) -> Result<Option<String>, HubError> {
    if is_whole_commit(revision) {
        return Ok(Some(revision.to_owned()));
    }
    let path = model.join("refs").join(revision);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(100).read_to_string(&mut text)) {
        Ok(_) => match text.trim() {
            commit if is_commit(commit) => Ok(Some(commit.to_owned())),
            _ => Err(HubError::Ref(path)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(HubError::Read(path, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_snapshot_is_found_by_branch_tag_and_commit() {
        let cache = tempfile::tempdir().unwrap();
        let settings = Settings {
            cache: Some(cache.path().to_owned()),
            ..Settings::default()
        };
        let find = |text: &str| find(&ModelId::parse(text).unwrap(), &settings);
        let model = cache.path().join("models--some--model");
        assert_eq!(
            find("some/model").unwrap().unwrap_err(),
            Missing {
                folder: model.clone(),
                file: None
            }
        );

        let snapshot = model.join("snapshots").join(COMMIT);
        for folder in [&model.join("blobs"), &model.join("refs/pr"), &snapshot] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(model.join("refs/main"), format!("{COMMIT}\n")).unwrap();
        fs::write(model.join("refs/pr/1"), COMMIT).unwrap();
        for (blob, name) in [("b1", "config.json"), ("b2", "model.safetensors")] {
            symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
        }
        fs::write(model.join("blobs/b1"), "{}").unwrap();
        // A link to a blob that is not there is what a broken download leaves.
        let missing = find("some/model").unwrap().unwrap_err();
        assert!(missing.file.unwrap().starts_with("model.safetensors"));
        fs::write(model.join("blobs/b2"), "").unwrap();
        for revision in [
            "",
            "@main",
            "@pr/1",
            "@0123456789abcdef0123456789abcdef01234567",
        ] {
            assert_eq!(
                find(&format!("some/model{revision}")).unwrap().unwrap(),
                snapshot
            );
        }
        assert!(find("some/model@other").unwrap().is_err());

        fs::write(model.join("refs/main"), "../../elsewhere").unwrap();
        assert!(matches!(find("some/model"), Err(HubError::Ref(_))));
    }
}
