//! Fetching a model: requests, checks and the layout in the cache.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use plmkit_contract::is_weight_index;

use crate::content::{hash_like, is_hash, note, verified_list};
use crate::files::{CONFIG, expected_weights, indexed, is_first_release, weights};
use crate::id::{is_commit, is_whole_commit};
use crate::{HubError, ModelId, Settings};

/// The progress of a download.
#[derive(Debug)]
pub enum DownloadEvent {
    /// The transfer of this file begins, of so many bytes.
    File(String, u64),
    /// So many more bytes of the file are present, those of an earlier attempt included. None: work without the network goes on.
    Bytes(u64),
    /// The file is complete.
    Complete,
}

/// Fetches the missing files of a model's snapshot into `cache`, and returns the folder of the snapshot.
pub(crate) fn fetch(
    id: &ModelId,
    cache: &Path,
    settings: &Settings,
    send: &dyn Fn(DownloadEvent),
) -> Result<PathBuf, HubError> {
    let model = id.folder(cache);
    let staging = model.join(".plmkit-download");
    let has_token = settings.token.is_some();
    let mut api = ApiBuilder::from_cache(Cache::new(staging.clone()))
        .with_token(settings.token.clone())
        .with_user_agent("plmkit", env!("CARGO_PKG_VERSION"));
    if let Some(endpoint) = &settings.endpoint {
        api = api.with_endpoint(endpoint.clone());
    }
    let failed =
        |url: &str, error: ApiError| HubError::from_request(url, &staging, has_token, error);
    let api = api
        .build()
        .map_err(|error| failed(&id.to_string(), error))?;
    let repo = |revision: &str| {
        let (id, revision) = (id.repository().to_owned(), revision.to_owned());
        api.repo(Repo::with_revision(id, RepoType::Model, revision))
    };
    // Nothing is written before this answer, so that a mistyped name leaves no files.
    let by_name = repo(id.revision());
    let url = model_url(&by_name);
    let info = by_name.info().map_err(|error| failed(&url, error))?;
    if !is_commit(&info.sha) {
        let what = format!("expected the hash of a commit, found '{}'", info.sha);
        return Err(HubError::answer(&url, &what));
    }
    let _lock = lock(cache, &model)?;
    let fetch = SnapshotFetch {
        // By commit: if the branch moves meanwhile, the files still belong together.
        repo: repo(&info.sha),
        has_token,
        cache,
        api: &api,
        staged: id.folder(&staging),
        snapshot: model.join("snapshots").join(&info.sha),
        staging,
        model,
        commit: info.sha,
        send,
    };
    fetch.clear()?;
    let listed = info.siblings.into_iter().map(|file| file.rfilename);
    fetch.fetch_files(&listed.collect::<Vec<_>>())?;
    if !is_whole_commit(id.revision()) {
        fetch.set_ref(id.revision())?;
    }
    // Only temporary files are left in it, so an error does not matter.
    let _ = fs::remove_dir_all(&fetch.staging);
    Ok(fetch.snapshot)
}

/// Takes the lock that one process at a time has on fetching the model. It is released on drop.
fn lock(cache: &Path, model: &Path) -> Result<File, HubError> {
    let name = model.file_name().unwrap_or_default();
    let folder = cache.join(".locks").join(name);
    create_folder(&folder)?;
    let path = folder.join("plmkit.lock");
    let cannot_write = HubError::cannot_write(&path);
    let file = File::create(&path).map_err(&cannot_write)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HubError::busy(&path)),
        Err(TryLockError::Error(source)) => Err(cannot_write(source)),
    }
}

/// Returns a model's address, for messages.
fn model_url(repo: &ApiRepo) -> String {
    let url = repo.url("");
    url.split("/resolve/").next().unwrap_or(&url).to_owned()
}

fn create_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(HubError::cannot_write(path))
}

/// Fetches the files of one commit.
struct SnapshotFetch<'a> {
    cache: &'a Path,
    api: &'a Api,
    repo: ApiRepo,
    has_token: bool,
    commit: String,
    /// The folder of the model in the cache.
    model: PathBuf,
    snapshot: PathBuf,
    /// A separate cache for hf-hub, inside `model`. hf-hub checks neither sizes nor hashes, and updates a branch after one file.
    staging: PathBuf,
    /// The folder of the model in that cache.
    staged: PathBuf,
    send: &'a dyn Fn(DownloadEvent),
}

impl SnapshotFetch<'_> {
    /// Removes what an earlier run staged, except partial files, and creates missing folders.
    fn clear(&self) -> Result<(), HubError> {
        for folder in ["snapshots", "refs"] {
            let folder = self.staged.join(folder);
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(HubError::cannot_write(&folder))?,
            }
        }
        create_folder(&self.staged.join("blobs"))?;
        create_folder(&self.model.join("blobs"))
    }

    /// Points a branch or tag to the commit, atomically.
    fn set_ref(&self, revision: &str) -> Result<(), HubError> {
        let temporary = self.staging.join("ref");
        let path = self.model.join("refs").join(revision);
        create_folder(path.parent().unwrap_or(&self.model))?;
        fs::write(&temporary, &self.commit)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(HubError::cannot_write(&path))
    }

    /// Fetches the files that a loader needs, out of those that the server has.
    fn fetch_files(&self, listed: &[String]) -> Result<(), HubError> {
        let Some(weights) = weights(listed) else {
            let (url, expected) = (model_url(&self.repo), expected_weights());
            let what = format!("{url}: expected {expected}, found neither");
            return Err(HubError::not_found(what));
        };
        if !is_first_release(weights) {
            self.fetch_file(CONFIG)?;
        }
        let path = self.fetch_file(weights)?;
        if !is_weight_index(weights) {
            return Ok(());
        }
        let files = indexed(&path)
            .map_err(|error| HubError::answer(&self.repo.url(weights), &error.to_string()))?;
        for file in &files {
            self.fetch_file(file)?;
        }
        Ok(())
    }

    /// Fetches a file, unless the snapshot has it, and returns its path in the snapshot.
    fn fetch_file(&self, name: &str) -> Result<PathBuf, HubError> {
        let path = self.snapshot.join(name);
        if path.exists() && !is_link_to_unhashed(&path) {
            return Ok(path);
        }
        let blob = self.fetch_blob(name)?;
        create_folder(path.parent().unwrap_or(&self.snapshot))?;
        // From the folder of the file to that of the model.
        let up = "../".repeat(name.split('/').count() + 1);
        let target = Path::new(&up).join("blobs").join(&blob);
        // A removed blob leaves a dangling link. One that is no hash may have been overwritten by another file.
        if path.is_symlink() {
            fs::remove_file(&path).map_err(HubError::cannot_write(&path))?;
        }
        symlink(target, &path).map_err(HubError::cannot_write(&path))?;
        Ok(path)
    }

    /// Fetches the content of a file, unless another snapshot has the same, and returns the name of its blob.
    fn fetch_blob(&self, name: &str) -> Result<String, HubError> {
        let url = self.repo.url(name);
        let failed = |error| HubError::from_request(&url, &self.staging, self.has_token, error);
        let metadata = self.api.metadata(&url).map_err(failed)?;
        let (etag, size) = (metadata.etag(), metadata.size() as u64);
        // Both names become paths, here and in hf-hub.
        let blob = etag.strip_prefix("W/").unwrap_or(etag);
        // Any other name may be that of several files, and could not be checked.
        if !is_hash(blob) {
            let what = format!("ETag '{etag}', expected a SHA-256 or a git SHA-1");
            return Err(HubError::answer(&url, &what));
        }
        let (expected, found) = (&self.commit, metadata.commit_hash());
        if found != expected {
            let what = format!("expected a file of commit {expected}, found one of '{found}'");
            return Err(HubError::answer(&url, &what));
        }
        let path = self.model.join("blobs").join(blob);
        if size_of(&path) == Some(size) {
            return Ok(blob.to_owned());
        }
        // hf-hub continues a partial file, and cannot continue one that is complete or too long.
        let part = self.staged.join("blobs").join(format!("{etag}.part"));
        if size_of(&part).is_some_and(|present| present >= size) {
            fs::remove_file(&part).map_err(HubError::cannot_write(&part))?;
        }
        (self.send)(DownloadEvent::File(name.to_owned(), size));
        let staged = self.repo.download_with_progress(name, self);
        let staged = staged.map_err(failed)?;
        let staged = staged
            .canonicalize()
            .map_err(HubError::cannot_write(&staged))?;
        self.check(&staged, blob, size).map_err(|what| {
            // The next run must not continue it.
            let _ = fs::remove_file(&staged);
            HubError::network(&url, &what)
        })?;
        File::open(&staged)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&staged, &path))
            .map_err(HubError::cannot_write(&path))?;
        // The file need not be hashed again when it is used.
        note(&verified_list(self.cache, &self.model), blob, &path);
        (self.send)(DownloadEvent::Complete);
        Ok(blob.to_owned())
    }

    /// Checks the announced size of a file, and that its name is its hash.
    fn check(&self, path: &Path, blob: &str, size: u64) -> Result<(), String> {
        let found = size_of(path).unwrap_or_default();
        if found != size {
            return Err(format!("expected {size} bytes, found {found}"));
        }
        let alive = || {
            (self.send)(DownloadEvent::Bytes(0));
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

/// Whether a file is a link to a blob whose name is no hash, as from a server with other `ETag`s.
fn is_link_to_unhashed(file: &Path) -> bool {
    let blob = fs::read_link(file).ok();
    let name = blob.as_deref().and_then(Path::file_name);
    name.is_some_and(|name| !is_hash(&name.to_string_lossy()))
}

fn size_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

/// Reports the bytes that hf-hub receives.
impl Progress for &SnapshotFetch<'_> {
    fn init(&mut self, _size: usize, _filename: &str) {}

    fn update(&mut self, size: usize) {
        (self.send)(DownloadEvent::Bytes(size as u64));
    }

    fn finish(&mut self) {}
}
