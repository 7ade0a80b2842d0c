//! The Hub's cache: `models--organisation--name/{blobs, refs, snapshots}`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plmkit_kit::{Exit, Fault, Stop, path_text};

use crate::content::{self, verified_list};
use crate::files;
use crate::id::{is_commit, is_whole_commit};
use crate::{HubError, ModelId, Settings};

/// Returns the snapshot of a model. The inner error says what the cache lacks.
pub(crate) fn find(id: &ModelId, settings: &Settings) -> Result<Result<PathBuf, String>, HubError> {
    let model = id.folder(settings.cache()?);
    let commit = commit(&model, id.revision())?;
    let is_known = commit.is_some();
    let snapshot = commit.map_or(model.clone(), |commit| model.join("snapshots").join(commit));
    if !is_known || !snapshot.is_dir() {
        let folder = path_text(&snapshot);
        return Ok(Err(format!("not in the Hub's cache ({folder})")));
    }
    Ok(match files::needed(&snapshot) {
        Ok(_) => Ok(snapshot),
        Err(missing) => {
            let folder = path_text(&snapshot);
            Err(format!(
                "not whole in the Hub's cache ({folder}: no {missing})"
            ))
        }
    })
}

/// Checks the files of a snapshot that a loader reads against the hashes in their names.
pub(crate) fn check(
    id: &ModelId,
    settings: &Settings,
    snapshot: &Path,
    stop: &Stop,
) -> Result<(), HubError> {
    let cache = settings.cache()?;
    let list = verified_list(cache, &id.folder(cache));
    let needed = files::needed(snapshot).unwrap_or_default();
    let mut files = needed.iter().map(|name| snapshot.join(name));
    files.try_for_each(|file| content::check(&list, &file, stop))
}

/// Returns the commit of a branch or tag when it was last fetched.
fn commit(model: &Path, revision: &str) -> Result<Option<String>, HubError> {
    if is_whole_commit(revision) {
        return Ok(Some(revision.to_owned()));
    }
    let path = model.join("refs").join(revision);
    let mut text = String::new();
    match content::open(&path).and_then(|file| file.take(100).read_to_string(&mut text)) {
        Ok(_) if is_commit(text.trim()) => Ok(Some(text.trim().to_owned())),
        Ok(_) => {
            let what = "expected the hash of a commit, found something else";
            Err(Fault::of_path(Exit::Data, &path, what).into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HubError::cannot_read(&path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use plmkit_kit::Failure;

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
        let missing = find("some/model").unwrap().unwrap_err();
        assert!(missing.starts_with("not in the Hub's cache"), "{missing}");

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
        // A broken download leaves a link without a blob.
        let missing = find("some/model").unwrap().unwrap_err();
        assert!(missing.contains(": no model.safetensors"), "{missing}");
        fs::write(model.join("blobs/b2"), "").unwrap();
        for revision in ["", "@main", "@pr/1", &format!("@{COMMIT}")] {
            let found = find(&format!("some/model{revision}")).unwrap();
            assert_eq!(found.unwrap(), snapshot);
        }
        assert!(find("some/model@other").unwrap().is_err());

        fs::write(model.join("refs/main"), "../../elsewhere").unwrap();
        let error = find("some/model").unwrap_err();
        assert_eq!(error.exit(), Exit::Data, "{error}");
    }
}
