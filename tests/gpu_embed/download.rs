//! `gpu-embed --download`, against a Hub of our own on this machine.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{self, bin, run, test_data};
use plmkit_store::EmbeddingsReader;
use serde_json::json;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a server does besides answering.
#[derive(Default)]
struct Faults {
    /// It hangs up after so many bytes of each weight file.
    cut: Option<usize>,
    /// It sends each file from its beginning, whatever part was asked for.
    no_ranges: bool,
    /// It changes a byte of each weight file.
    flip: bool,
    /// It changes a byte of each configuration.
    flip_config: bool,
    /// It announces the size of a weight file and sends so many bytes.
    endless: Option<usize>,
    /// The name that it gives to each content.
    etag: Option<&'static str>,
    /// It answers everything with this status.
    status: Option<u16>,
}

type SetFault = fn(&mut Faults);

/// A Hub with one model, `some/model`.
struct Hub {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    faults: Arc<Mutex<Faults>>,
}

impl Hub {
    fn start(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let hub = Self {
            endpoint: format!("http://{}", listener.local_addr().expect("address")),
            requests: Arc::default(),
            faults: Arc::default(),
        };
        let (requests, faults) = (Arc::clone(&hub.requests), Arc::clone(&hub.faults));
        thread::spawn(move || {
            for stream in listener.incoming() {
                requests.fetch_add(1, Ordering::Relaxed);
                // A client that goes away is no failure of a server.
                let _ = answer(
                    &stream.expect("accept"),
                    &files,
                    &faults.lock().expect("lock"),
                );
            }
        });
        hub
    }

    fn of_tiny() -> Self {
        let file = |name| fs::read(test_data("model-tiny").join(name)).expect("read");
        Self::start(vec![
            ("README.md", b"# model".to_vec()),
            ("config.json", file("config.json")),
            ("model.safetensors", file("model.safetensors")),
        ])
    }

    /// Sets the faults from now on, and no others.
    fn fault(&self, set: impl FnOnce(&mut Faults)) {
        let mut faults = Faults::default();
        set(&mut faults);
        *self.faults.lock().expect("lock") = faults;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn answer(
    mut stream: &TcpStream,
    files: &[(&str, Vec<u8>)],
    faults: &Faults,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut start = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            let first = range.split('-').next().unwrap_or_default();
            start = first.parse().expect("range");
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    if let Some(status) = faults.status {
        return write!(
            stream,
            "HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    if path == "/api/models/some/model/revision/main" {
        let siblings: Vec<_> = files
            .iter()
            .map(|(name, _)| json!({"rfilename": name}))
            .collect();
        let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
        let length = body.len();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
    }
    let name = path.strip_prefix(&format!("/some/model/resolve/{COMMIT}/"));
    let Some((name, bytes)) = files.iter().find(|(file, _)| Some(*file) == name) else {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    };
    let is_weights = !name.contains(".json");
    let mut body = bytes.clone();
    if (faults.flip && is_weights) || (faults.flip_config && !is_weights) {
        let last = body.len() - 3;
        body[last] ^= 1;
    }
    let (total, sent_from) = (body.len(), if faults.no_ranges { 0 } else { start });
    let body = &body[sent_from.min(total)..];
    // As on the Hub: the SHA-256 of a large file, and what git calls a small one.
    let etag = faults
        .etag
        .map_or_else(|| etag(bytes, is_weights), str::to_owned);
    if let Some(bytes) = faults.endless.filter(|_| is_weights && body.len() > 1) {
        write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-{}/{total}\r\n\
             etag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\nconnection: close\r\n\r\n",
            total - 1,
        )?;
        let zeros = vec![0; 1 << 16];
        return (0..bytes >> 16).try_for_each(|_| stream.write_all(&zeros));
    }
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\ncontent-range: bytes {sent_from}-{}/{total}\r\n\
         etag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\nconnection: close\r\n\r\n",
        body.len(),
        total - 1,
    )?;
    let sent = faults.cut.filter(|_| is_weights).unwrap_or(body.len());
    stream.write_all(&body[..sent.min(body.len())])
}

fn etag(bytes: &[u8], is_large: bool) -> String {
    use sha1::{Digest as _, Sha1};
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;

    let hash = if is_large {
        Sha256::digest(bytes).to_vec()
    } else {
        let head = format!("blob {}\0", bytes.len());
        Sha1::digest([head.as_bytes(), bytes].concat()).to_vec()
    };
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Batches, and a home for the Hub's cache.
struct Case {
    folder: tempfile::TempDir,
    batches: PathBuf,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temp folder");
        let fasta = folder.path().join("two.fasta");
        fs::write(&fasta, ">a\nMKTAYIAK\n>b\nGG\n").expect("write");
        let shard = common::shard(&fasta, &folder.path().join("shards"), &[]);
        let batches = folder.path().join("b.arrow");
        common::pack(&shard, &batches, 16384);
        Self { folder, batches }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the model in the cache.
    fn cached(&self) -> PathBuf {
        self.path("hf/hub/models--some--model")
    }

    fn embed(&self, model: &str, out: &str) -> Command {
        let mut command = bin("gpu-embed");
        command
            .arg(&self.batches)
            .args([
                "--model",
                model,
                "--device",
                "cpu",
                "--progress",
                "none",
                "--out",
            ])
            .arg(self.path(out))
            .env("HF_HOME", self.path("hf"));
        for variable in ["HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"] {
            command.env_remove(variable);
        }
        for variable in ["all_proxy", "http_proxy", "https_proxy"] {
            command
                .env_remove(variable)
                .env_remove(variable.to_uppercase());
        }
        command
    }

    fn download(&self, model: &str, out: &str, hub: &Hub) -> Command {
        let mut command = self.embed(model, out);
        command.arg("--download").env("HF_ENDPOINT", &hub.endpoint);
        command
    }

    /// Fails with this code and this last line, and leaves nothing that looks whole.
    fn fails(&self, command: &mut Command, code: i32, what: &str) {
        let output = command.output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        let mut lines: Vec<&str> = stderr.lines().collect();
        let last = lines.pop().unwrap_or_default();
        assert!(last.contains(what), "expected '{what}' in: {stderr}");
        assert!(
            lines.iter().all(|line| line.contains(": fetching ")),
            "{stderr}"
        );
        assert!(!self.path("e.parquet").exists());
        assert!(!self.cached().join("refs/main").exists());
    }
}

/// The bytes of all files below a folder.
fn walk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("folder");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("entry");
        match entry.file_type().expect("type") {
            kind if kind.is_dir() => walk(&entry.path()),
            _ => entry.metadata().expect("metadata").len(),
        }
    });
    sizes.sum()
}

#[test]
fn a_cached_file_that_changed_is_not_used() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    run(&mut case.download("some/model", "first.parquet", &hub));
    let snapshot = case.cached().join("snapshots").join(COMMIT);
    for name in ["config.json", "model.safetensors"] {
        let blob = snapshot.join(name).canonicalize().expect("blob");
        let whole = fs::read(&blob).expect("read");
        let mut flipped = whole.clone();
        // In the middle of the values; in the configuration, a blank that JSON does not mind.
        let at = if name == "config.json" {
            1
        } else {
            whole.len() / 2
        };
        flipped[at] = if name == "config.json" {
            b' '
        } else {
            flipped[at] ^ 1
        };
        fs::write(&blob, &flipped).expect("write");
        let mut command = case.embed("some/model", "e.parquet");
        let output = command.output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(65), "{stderr}");
        let file = blob.file_name().expect("name").to_string_lossy();
        assert!(
            stderr.contains(&format!("{file}: damaged: expected")),
            "{stderr}"
        );
        fs::write(&blob, &whole).expect("write");
    }
    run(&mut case.embed("some/model", "e.parquet"));
}

/// The same vectors by a model of another name: that of the Hub with its commit, and that of a folder.
fn same_rows(hub: &Path, folder: &Path) {
    let [hub, folder] = [hub, folder].map(|path| EmbeddingsReader::open(path).expect("embeddings"));
    assert_eq!(hub.digest(), folder.digest());
    let name = |of: &EmbeddingsReader| of.provenance().model.clone().expect("a name");
    assert_eq!(name(&hub).name, "some/model");
    assert_eq!(name(&hub).revision.as_deref(), Some(COMMIT));
    assert!(name(&folder).name.starts_with("model-tiny"));
    assert_eq!(name(&folder).revision, None);
}

fn same_bytes(one: &Path, other: &Path) {
    assert!(fs::read(one).expect("read") == fs::read(other).expect("read"));
}

#[test]
fn a_model_is_fetched_once_and_then_found_without_a_network() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let said = run(&mut case.download("some/model", "e.parquet", &hub));
    assert!(
        said.contains("some/model: fetching model.safetensors, 1097272 bytes"),
        "{said}"
    );
    let folder = test_data("model-tiny");
    run(&mut case.embed(folder.to_str().expect("path"), "folder.parquet"));
    same_rows(&case.path("e.parquet"), &case.path("folder.parquet"));

    // The layout is that of the Hub's own library, with nothing of ours left in it.
    let snapshot = case.cached().join("snapshots").join(COMMIT);
    assert_eq!(common::all(&snapshot), ["config.json", "model.safetensors"]);
    let link = fs::read_link(snapshot.join("config.json")).expect("link");
    assert!(link.starts_with("../../blobs"), "{}", link.display());
    assert_eq!(common::all(&case.cached()), ["blobs", "refs", "snapshots"]);
    assert_eq!(
        fs::read_to_string(case.cached().join("refs/main")).expect("ref"),
        COMMIT
    );

    let requests = hub.requests();
    run(&mut case.download("some/model", "again.parquet", &hub));
    assert_eq!(hub.requests(), requests, "what is there is not asked for");
    for model in ["some/model".to_owned(), format!("some/model@{COMMIT}")] {
        run(case
            .embed(&model, "offline.parquet")
            .env("HF_HUB_OFFLINE", "1")
            .arg("--force"));
        same_bytes(&case.path("e.parquet"), &case.path("offline.parquet"));
    }
}

/// As PyTorch saves it, in several files: the index says which.
#[test]
fn a_model_in_several_files() {
    let folder = test_data("model-tiny-bin");
    let files = [
        "config.json",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
    ];
    let content = files.map(|name| (name, fs::read(folder.join(name)).expect("read")));
    let unwanted = [("tf_model.h5", Vec::new()), ("vocab.txt", Vec::new())];
    let (case, hub) = (Case::new(), Hub::start([&content[..], &unwanted].concat()));
    hub.fault(|faults| faults.cut = Some(100_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(&mut command, 75, "-00001-of-00002.bin: cannot fetch: ");
    hub.fault(|_| {});
    run(&mut command);
    let snapshot = case.cached().join("snapshots").join(COMMIT);
    assert_eq!(common::all(&snapshot), files);
    run(&mut case.embed(folder.to_str().expect("path"), "folder.parquet"));
    same_rows(&case.path("e.parquet"), &case.path("folder.parquet"));
}

#[test]
fn a_model_that_is_not_there_is_not_fetched_unasked() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut unasked = case.embed("some/model", "e.parquet");
    unasked.env("HF_ENDPOINT", &hub.endpoint);
    case.fails(
        &mut unasked,
        66,
        "some/model: no such file or folder, and not in the Hub's cache",
    );
    case.fails(&mut unasked, 66, "--download fetches it");
    let mut offline = case.download("some/model", "e.parquet", &hub);
    case.fails(
        offline.env("HF_HUB_OFFLINE", "1"),
        66,
        "HF_HUB_OFFLINE is set",
    );
    assert_eq!(hub.requests(), 0);
    assert!(!case.path("hf").exists(), "nothing is written either");
}

#[test]
fn a_server_that_does_not_have_it() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut absent = case.download("some/other", "e.parquet", &hub);
    case.fails(
        &mut absent,
        66,
        "/some/other: no such model, revision or file (404)",
    );
    let mut revision = case.download("some/model@v2", "e.parquet", &hub);
    case.fails(&mut revision, 66, "no such model, revision or file (404)");

    assert!(!case.path("hf").exists(), "a mistyped name leaves nothing");

    let nothing = Hub::start(vec![
        ("config.json", b"{}".to_vec()),
        ("model.onnx", vec![]),
    ]);
    let mut command = case.download("some/model", "e.parquet", &nothing);
    case.fails(
        &mut command,
        66,
        "/some/model: expected model.safetensors or",
    );
}

#[test]
fn a_server_that_dies_on_the_way() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    hub.fault(|faults| faults.cut = Some(400_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(&mut command, 75, "model.safetensors: cannot fetch: ");
    // Neither does the next one take what is there for a model.
    let mut offline = case.embed("some/model", "e.parquet");
    case.fails(&mut offline, 66, "not in the Hub's cache");

    hub.fault(|_| {});
    run(&mut case.download("some/model", "e.parquet", &hub));
    let weights = case
        .cached()
        .join("snapshots")
        .join(COMMIT)
        .join("model.safetensors");
    same_bytes(&weights, &test_data("model-tiny/model.safetensors"));
}

#[test]
fn a_server_that_ignores_ranges() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    hub.fault(|faults| faults.cut = Some(400_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(&mut command, 75, "cannot fetch: ");
    hub.fault(|faults| faults.no_ranges = true);
    case.fails(
        &mut command,
        75,
        "expected 1097272 bytes, the server sends more",
    );
    run(&mut command);
}

#[test]
fn a_server_that_sends_something_else() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut command = case.download("some/model", "e.parquet", &hub);
    let too_many = "expected 1097272 bytes, the server sends more";
    let no_etag = "not an answer of a Hub: ETag '../../../escaped'";
    let faults: [(SetFault, i32, &str); 6] = [
        (
            |it| it.flip_config = true,
            75,
            "config.json: cannot fetch: expected git SHA-1 ",
        ),
        (|it| it.flip = true, 75, "expected SHA-256 "),
        (|it| it.endless = Some(3 << 30), 75, too_many),
        (|it| it.etag = Some("../../../escaped"), 65, no_etag),
        (
            |it| it.status = Some(503),
            75,
            "the server answers with status 503",
        ),
        (
            |it| it.status = Some(401),
            66,
            "a private one needs a token in HF_TOKEN",
        ),
    ];
    for (fault, code, message) in faults {
        hub.fault(fault);
        case.fails(&mut command, code, message);
        let cached = walk(&case.cached());
        assert!(cached < 1 << 30, "{cached} bytes were taken");
    }
    hub.fault(|_| {});
    run(&mut command);
}

#[test]
fn what_is_wrong_with_a_token_is_not_said_of_the_server_or_the_model() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut command = case.download("some/model", "e.parquet", &hub);
    command.env("HF_TOKEN", "hf_valid");
    for status in [401, 403] {
        hub.fault(|faults| faults.status = Some(status));
        let refused = format!("/some/model: the server refuses the token in HF_TOKEN ({status})");
        case.fails(&mut command, 66, &refused);
    }
    let asked = hub.requests();
    for token in [
        &b"hf_secret\nX-Other: 1"[..],
        b"hf_\x01secret",
        b"hf_\xffsecret",
    ] {
        command.env("HF_TOKEN", OsStr::from_bytes(token));
        case.fails(&mut command, 2, "HF_TOKEN: expected a token");
        let output = command.output().expect("run");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"));
    }
    assert_eq!(hub.requests(), asked);
    hub.fault(|_| {});
    run(command.env("HF_TOKEN", "hf_valid\n"));
}

#[test]
fn a_server_that_is_not_there() {
    let case = Case::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let mut command = case.embed("some/model", "e.parquet");
    command
        .arg("--download")
        .env("HF_ENDPOINT", format!("http://{}", port.expect("port")));
    case.fails(&mut command, 75, "cannot fetch: connection refused");
    command.env("HF_ENDPOINT", "ftp://elsewhere");
    case.fails(&mut command, 2, "HF_ENDPOINT: expected an address");
}

#[test]
fn a_stop_ends_a_download() {
    let case = Case::new();
    // It accepts and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("listen");
    let mut command = case.embed("some/model", "e.parquet");
    let endpoint = format!("http://{}", silent.local_addr().expect("address"));
    let mut child = command
        .arg("--download")
        .env("HF_ENDPOINT", endpoint)
        .spawn()
        .expect("start");
    let (_connection, _) = silent.accept().expect("accept");
    run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    let status = child.wait().expect("wait");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(15)
    );
}
