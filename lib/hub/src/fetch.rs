//! Fetching a model: what is asked for, checked and laid down.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use crate::commit::{is_commit, is_whole_commit};
use crate::content::{Verified, hash_like};
use crate::files::{CONFIG, WEIGHTS, indexed, is_index};
use crate::{HubError, ModelId};

/// What is to be fetched, from where and to where.
pub(crate) struct DownloadJob {
    pub(crate) id: ModelId,
    /// The folder of the Hub's cache, absolute.
    pub(crate) cache: PathBuf,
    pub(crate) endpoint: Option<String>,
    pub(crate) token: Option<String>,
}

/// What happens to a job.
#[derive(Debug)]
pub(crate) enum DownloadEvent {
    /// A file of so many bytes is begun.
    File { name: String, bytes: u64 },
    /// So many more bytes of it are there.
    Bytes(u64),
    /// All of it is there.
    Whole,
    /// Work goes on that needs no network.
    Alive,
    /// The job is over.
    Ended(Result<PathBuf, HubError>),
}

/// Sends an event to the thread that waits for the download.
type SendEvent<'a> = dyn Fn(DownloadEvent) + 'a;

impl DownloadJob {
    /// Fetches what the snapshot lacks and gives its folder.
    pub(crate) fn run(&self, send: &SendEvent) -> Result<PathBuf, HubError> {
        let paths = DownloadPaths::new(&self.id, &self.cache);
        let api = self.api(&paths)?;
        // Before anything is written: a name that is mistyped leaves nothing behind.
        let (commit, listed) = self.look(&api, &paths)?;
        let _lock = paths.claim(&self.cache)?;
        paths.clear()?;
        let fetch = SnapshotFetch {
            // By its commit: a branch that moves meanwhile would make a model of two.
            repo: api.repo(self.repo(&commit)),
            cache: &self.cache,
            api: &api,
            paths: &paths,
            snapshot: paths.model.join("snapshots").join(&commit),
            commit,
            send,
        };
        fetch.all(&listed)?;
        if !is_whole_commit(self.id.revision()) {
            paths.set_ref(self.id.revision(), &fetch.commit)?;
        }
        // Nothing of value is left in it; what cannot be removed is in nobody's way.
        let _ = fs::remove_dir_all(&paths.staging);
        Ok(fetch.snapshot)
    }

    fn api(&self, paths: &DownloadPaths) -> Result<Api, HubError> {
        let builder = ApiBuilder::from_cache(Cache::new(paths.staging.clone()))
            .with_token(self.token.clone())
            .with_user_agent("plmkit", env!("CARGO_PKG_VERSION"));
        let builder = match &self.endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint.clone()),
            None => builder,
        };
        let url = self.id.to_string();
        let built = builder.build();
        built.map_err(|error| HubError::from_request(url, &paths.staging, error))
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(
            self.id.repository().to_owned(),
            RepoType::Model,
            revision.to_owned(),
        )
    }

    /// The commit that the revision is at, and the files in it.
    fn look(&self, api: &Api, paths: &DownloadPaths) -> Result<(String, Vec<String>), HubError> {
        let repo = api.repo(self.repo(self.id.revision()));
        let url = model_url(&repo);
        let info = repo
            .info()
            .map_err(|error| HubError::from_request(url.clone(), &paths.staging, error))?;
        if !is_commit(&info.sha) {
            let what = format!("expected the hash of a commit, found '{}'", info.sha);
            return Err(HubError::Answer(url, what));
        }
        let files = info.siblings.into_iter().map(|file| file.rfilename);
        Ok((info.sha, files.collect()))
    }
}

/// A model's address, for messages.
fn model_url(repo: &ApiRepo) -> String {
    let url = repo.url("");
    url.split("/resolve/").next().unwrap_or(&url).to_owned()
}

/// Where things go.
struct DownloadPaths {
    /// The folder of the model in the cache.
    model: PathBuf,
    /// A cache of hf-hub's own in it. What hf-hub takes for a whole file may be none: it neither compares sizes nor
    /// hashes, and it lets a branch lead to a snapshot as soon as one file is there.
    staging: PathBuf,
    /// The folder of the model in that cache.
    staged: PathBuf,
    lock: PathBuf,
}

impl DownloadPaths {
    fn new(id: &ModelId, cache: &Path) -> Self {
        let model = id.folder(cache);
        let staging = model.join(".plmkit-download");
        let name = model.file_name().unwrap_or_default();
        Self {
            staged: id.folder(&staging),
            lock: cache.join(".locks").join(name).join("plmkit.lock"),
            model,
            staging,
        }
    }

    /// The lock that one process at a time has on fetching the model, for as long as the value lives.
    fn claim(&self, cache: &Path) -> Result<File, HubError> {
        let path = &self.lock;
        create_folder(path.parent().unwrap_or(cache))?;
        let file = File::create(path).map_err(|source| write_error(path, source))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(HubError::Busy(path.clone())),
            Err(TryLockError::Error(source)) => Err(write_error(path, source)),
        }
    }

    /// Removes what an earlier run staged, except for the files that it had begun.
    fn clear(&self) -> Result<(), HubError> {
        for folder in ["snapshots", "refs"] {
            let folder = self.staged.join(folder);
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(write_error(&folder, error));
                }
                _ => {}
            }
        }
        create_folder(&self.staged.join("blobs"))?;
        create_folder(&self.model.join("blobs"))
    }

    /// Lets a branch or tag lead to a commit, at once and not in between.
    fn set_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let (begun, path) = (
            self.staging.join("ref"),
            self.model.join("refs").join(revision),
        );
        create_folder(path.parent().unwrap_or(&self.model))?;
        fs::write(&begun, commit)
            .and_then(|()| fs::rename(&begun, &path))
            .map_err(|source| write_error(&path, source))
    }
}

fn create_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| write_error(path, source))
}

fn write_error(path: &Path, source: io::Error) -> HubError {
    HubError::Write(path.to_owned(), source)
}

/// The files of one commit.
struct SnapshotFetch<'a> {
    cache: &'a Path,
    api: &'a Api,
    repo: ApiRepo,
    paths: &'a DownloadPaths,
    commit: String,
    snapshot: PathBuf,
    send: &'a SendEvent<'a>,
}

impl SnapshotFetch<'_> {
    /// Fetches the files that a loader needs, of those that the server has.
    fn all(&self, listed: &[String]) -> Result<(), HubError> {
        let has = |name: &str| listed.iter().any(|file| file == name);
        let Some(weights) = WEIGHTS.into_iter().find(|name| has(name)) else {
            return Err(HubError::NoWeights(
                model_url(&self.repo),
                WEIGHTS.join(" or "),
            ));
        };
        create_folder(&self.snapshot)?;
        self.file(CONFIG)?;
        let path = self.file(weights)?;
        if !is_index(weights) {
            return Ok(());
        }
        let files = indexed(&path)
            .map_err(|error| HubError::Answer(self.repo.url(weights), error.to_string()))?;
        files.iter().try_for_each(|file| self.file(file).map(drop))
    }

    /// Fetches a file, unless it is there, and gives its path in the snapshot.
    fn file(&self, name: &str) -> Result<PathBuf, HubError> {
        let path = self.snapshot.join(name);
        if path.exists() {
            return Ok(path);
        }
        let blob = self.blob(name)?;
        let target = Path::new("../../blobs").join(&blob);
        // A link that leads nowhere is what a removed blob leaves.
        if path.is_symlink() {
            fs::remove_file(&path).map_err(|source| write_error(&path, source))?;
        }
        symlink(target, &path).map_err(|source| write_error(&path, source))?;
        Ok(path)
    }

    /// Fetches the content of a file, unless another snapshot has the same, and gives its name among the blobs.
    fn blob(&self, name: &str) -> Result<String, HubError> {
        let url = self.repo.url(name);
        let failed = |error| HubError::from_request(url.clone(), &self.paths.staging, error);
        let wrong = |what: String| HubError::Answer(url.clone(), what);
        let metadata = self.api.metadata(&url).map_err(failed)?;
        let (etag, size) = (metadata.etag(), metadata.size() as u64);
        // Both become paths, here and in hf-hub.
        let blob = etag.strip_prefix("W/").unwrap_or(etag);
        if !is_blob(blob) {
            return Err(wrong(format!("ETag '{etag}'")));
        }
        if metadata.commit_hash() != self.commit {
            return Err(wrong(format!(
                "expected a file of commit {}, found one of '{}'",
                self.commit,
                metadata.commit_hash()
            )));
        }
        let path = self.paths.model.join("blobs").join(blob);
        if size_of(&path) == Some(size) {
            return Ok(blob.to_owned());
        }
        // hf-hub goes on where the part ends, and cannot go on from one that has everything or more.
        let part = self.paths.staged.join("blobs").join(format!("{etag}.part"));
        if size_of(&part).is_some_and(|begun| begun >= size) {
            fs::remove_file(&part).map_err(|source| write_error(&part, source))?;
        }
        (self.send)(DownloadEvent::File {
            name: name.to_owned(),
            bytes: size,
        });
        let staged = self
            .repo
            .download_with_progress(name, Counter { send: self.send })
            .map_err(failed)?;
        let staged = staged
            .canonicalize()
            .map_err(|source| write_error(&staged, source))?;
        self.check(&staged, blob, size).map_err(|what| {
            // Not to be gone on from.
            let _ = fs::remove_file(&staged);
            HubError::Network(url.clone(), what)
        })?;
        File::open(&staged)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&staged, &path))
            .map_err(|source| write_error(&path, source))?;
        // So that it is not hashed again when it is used.
        Verified::open(self.cache, &self.paths.model).add(blob, &path);
        (self.send)(DownloadEvent::Whole);
        Ok(blob.to_owned())
    }

    /// That a file has the size that was announced, and the hash where its name is one.
    fn check(&self, path: &Path, blob: &str, size: u64) -> Result<(), String> {
        let found = size_of(path).unwrap_or_default();
        if found != size {
            return Err(format!("expected {size} bytes, found {found}"));
        }
        let alive = || {
            (self.send)(DownloadEvent::Alive);
            true
        };
        match hash_like(blob, path, &alive).map_err(|error| error.to_string())? {
            Some((hash, found)) if !found.eq_ignore_ascii_case(blob) => {
                Err(format!("expected {hash} {blob}, found {found}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an `ETag` can be the name of a file.
fn is_blob(etag: &str) -> bool {
    (1..=128).contains(&etag.len())
        && etag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn size_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

/// Counts the bytes that hf-hub receives.
struct Counter<'a> {
    send: &'a SendEvent<'a>,
}

impl Progress for Counter<'_> {
    fn init(&mut self, _size: usize, _filename: &str) {}

    fn update(&mut self, size: usize) {
        (self.send)(DownloadEvent::Bytes(size as u64));
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_that_leads_elsewhere_is_no_name() {
        assert!(is_blob("5f3a-61b"));
        for etag in ["", "..", "../x", "a/b", "a.lock", "/etc"] {
            assert!(!is_blob(etag), "{etag}");
        }
    }
}
