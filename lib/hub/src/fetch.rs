//! Fetching a model: requests, checks and the layout in the cache.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use plmkit_contract::{MODEL_JSON_BYTES, is_weight_index};
use plmkit_kit::io_text;
use serde_json::Value;
use ureq::Body;
use ureq::http::{HeaderMap, Response};

use crate::client::{Client, header};
use crate::content::{hash_like, is_hash, note, verified_list, writable};
use crate::files::{CONFIG, TOKENS, expected_weights, indexed, is_first_release, weights};
use crate::id::{is_commit, is_whole_commit};
use crate::{HubError, ModelId, Settings};

/// The server, unless the user names another.
const HUB: &str = "https://huggingface.co";

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
    let client = Client::new(settings, send);
    let (hub, repository) = (settings.endpoint.as_deref().unwrap_or(HUB), id.repository());
    let url = format!("{hub}/{repository}");
    // Nothing is written before this answer, so that a mistyped name leaves no files.
    let revision = id.revision().replace('/', "%2F");
    let about = format!("{hub}/api/models/{repository}/revision/{revision}");
    let (commit, listed) = describe(&client, &url, &about)?;
    let _lock = lock(cache, &model)?;
    let fetch = SnapshotFetch {
        // By commit: if the branch moves meanwhile, the files still belong together.
        snapshot: model.join("snapshots").join(&commit),
        staging: model.join(".plmkit-download"),
        client,
        url,
        cache,
        model,
        commit,
        send,
    };
    create_folder(&fetch.staging)?;
    create_folder(&fetch.model.join("blobs"))?;
    fetch.fetch_files(&listed)?;
    if !is_whole_commit(id.revision()) {
        fetch.set_ref(id.revision())?;
    }
    // Only temporary files are left in it, so an error does not matter.
    let _ = fs::remove_dir_all(&fetch.staging);
    Ok(fetch.snapshot)
}

/// Returns the commit of a revision, and the names of its files.
fn describe(
    client: &Client<'_>,
    url: &str,
    about: &str,
) -> Result<(String, Vec<String>), HubError> {
    let (_, mut answer) = client.get(url, about, 0)?;
    let body = answer.body_mut().with_config().limit(MODEL_JSON_BYTES);
    let info = body.read_json::<Value>();
    let info = info.map_err(|error| HubError::from_request(url, error))?;
    let commit = info["sha"].as_str().unwrap_or_default();
    if !is_commit(commit) {
        let what = format!("expected the hash of a commit, found '{commit}'");
        return Err(HubError::answer(url, &what));
    }
    let files = info["siblings"].as_array().into_iter().flatten();
    let files = files.filter_map(|file| Some(file["rfilename"].as_str()?.to_owned()));
    Ok((commit.to_owned(), files.collect()))
}

/// Takes the lock that one process at a time has on fetching the model. It is released on drop.
fn lock(cache: &Path, model: &Path) -> Result<File, HubError> {
    let name = model.file_name().unwrap_or_default();
    let folder = cache.join(".locks").join(name);
    create_folder(&folder)?;
    let path = folder.join("plmkit.lock");
    let cannot_write = HubError::cannot_write(&path);
    let file = writable(&path).and_then(File::create);
    let file = file.map_err(&cannot_write)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HubError::busy(&path)),
        Err(TryLockError::Error(source)) => Err(cannot_write(source)),
    }
}

fn create_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(HubError::cannot_write(path))
}

/// Fetches the files of one commit.
struct SnapshotFetch<'a> {
    client: Client<'a>,
    /// The address of the model.
    url: String,
    cache: &'a Path,
    commit: String,
    /// The folder of the model in the cache.
    model: PathBuf,
    snapshot: PathBuf,
    /// The folder of partial files, inside `model`.
    staging: PathBuf,
    send: &'a dyn Fn(DownloadEvent),
}

impl SnapshotFetch<'_> {
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
            let (url, expected) = (&self.url, expected_weights());
            let what = format!("{url}: expected {expected}, found neither");
            return Err(HubError::not_found(what));
        };
        if !is_first_release(weights) || listed.iter().any(|file| file == CONFIG) {
            self.fetch_file(CONFIG)?;
        }
        for file in listed.iter().filter(|file| TOKENS.contains(&file.as_str())) {
            self.fetch_file(file)?;
        }
        let path = self.fetch_file(weights)?;
        if !is_weight_index(weights) {
            return Ok(());
        }
        let files = indexed(&path)
            .map_err(|error| HubError::answer(&self.address(weights), &error.to_string()))?;
        for file in &files {
            self.fetch_file(file)?;
        }
        Ok(())
    }

    fn address(&self, name: &str) -> String {
        format!("{}/resolve/{}/{name}", self.url, self.commit)
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
        let url = self.address(name);
        let part = format!("{}-{}", self.commit, name.replace('/', "-"));
        let part = self.staging.join(part);
        let mut start = size_of(&part).unwrap_or(0);
        let (mut hub, mut answer) = self.client.get(&url, &url, start)?;
        let range = header(answer.headers(), "content-range").unwrap_or_default();
        // A server without ranges, or with a shorter file, is asked for the whole file.
        if start > 0 && !range.starts_with(&format!("bytes {start}-")) {
            start = 0;
            (hub, answer) = self.client.get(&url, &url, start)?;
        }
        let size = size_told(&hub, &answer)
            .ok_or_else(|| HubError::answer(&url, "expected the size of the file, found none"))?;
        let etag = header(&hub, "x-linked-etag").or_else(|| header(&hub, "etag"));
        let etag = etag.unwrap_or_default().replace('"', "");
        // The name becomes a path.
        let blob = etag.strip_prefix("W/").unwrap_or(&etag);
        // Any other name may be that of several files, and could not be checked.
        if !is_hash(blob) {
            let what = format!("ETag '{etag}', expected a SHA-256 or a git SHA-1");
            return Err(HubError::answer(&url, &what));
        }
        let expected = &self.commit;
        let found = header(&hub, "x-repo-commit").unwrap_or_default();
        if found != expected {
            let what = format!("expected a file of commit {expected}, found one of '{found}'");
            return Err(HubError::answer(&url, &what));
        }
        let path = self.model.join("blobs").join(blob);
        if size_of(&path) == Some(size) {
            return Ok(blob.to_owned());
        }
        (self.send)(DownloadEvent::File(name.to_owned(), size));
        (self.send)(DownloadEvent::Bytes(start));
        let mut options = File::options();
        let file = writable(&part).and_then(|part| options.append(true).create(true).open(part));
        let file = file.and_then(|file| file.set_len(start).map(|()| file));
        let mut file = file.map_err(HubError::cannot_write(&part))?;
        // One byte too many is enough to see that the server sends more.
        let limit = size.saturating_sub(start).saturating_add(1);
        let (mut body, mut buffer) = (answer.body_mut().as_reader().take(limit), vec![0; 1 << 16]);
        loop {
            let read = body.read(&mut buffer);
            let count = read.map_err(|error| HubError::network(&url, &io_text(&error)))?;
            if count == 0 {
                break;
            }
            let written = file.write_all(&buffer[..count]);
            written.map_err(HubError::cannot_write(&part))?;
            (self.send)(DownloadEvent::Bytes(count as u64));
        }
        self.check(&part, blob, size).map_err(|what| {
            // The next run must not continue it.
            let _ = fs::remove_file(&part);
            HubError::network(&url, &what)
        })?;
        file.sync_all()
            .and_then(|()| fs::rename(&part, &path))
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
            let more = (found > size).then_some("the server sends more".to_owned());
            let what = more.unwrap_or_else(|| format!("found {found}"));
            return Err(format!("expected {size} bytes, {what}"));
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

/// Returns the size of a file, by the last answer to a request of it or by that of the Hub.
fn size_told(hub: &HeaderMap, answer: &Response<Body>) -> Option<u64> {
    let range = header(answer.headers(), "content-range");
    let length = header(answer.headers(), "content-length");
    let sizes = [
        range.and_then(|range| range.rsplit('/').next()),
        length.filter(|_| answer.status() == 200),
        header(hub, "x-linked-size"),
    ];
    sizes
        .into_iter()
        .flatten()
        .find_map(|size| size.parse().ok())
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
