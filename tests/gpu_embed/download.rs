//! `gpu-embed --download`, against a local Hub.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use plmkit_store::EmbeddingsReader;
use serde_json::json;

use crate::common::{self, assert_fails, run, test_data};
use crate::{assert_has, ends, stderr};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Faults of the server.
#[derive(Default)]
struct Faults {
    /// It hangs up after this many bytes of each weight file.
    cut: Option<usize>,
    /// How it answers a request for a range.
    ranges: Ranges,
    /// It changes a byte of each weight file.
    flip: bool,
    /// It changes a byte of each configuration.
    flip_config: bool,
    /// It announces the size of a weight file and sends this many bytes.
    endless: Option<usize>,
    /// The `ETag` of every file.
    etag: Option<&'static str>,
    /// It answers every request with this status.
    status: Option<u16>,
    /// It answers every request of a file with this status, this `Retry-After` and so many times.
    busy: Option<(u16, String, usize)>,
}

/// What a server makes of a range.
#[derive(Clone, Copy, Default, Debug)]
enum Ranges {
    #[default]
    Sent,
    /// The whole file, as one range.
    Whole,
    /// The whole file, with status 200 and no word of ranges.
    Ignored,
    /// Another range than that requested.
    Other,
    /// An error of the range.
    Refused,
}

type SetFault = fn(&mut Faults);

/// A Hub with one model, `some/model`.
struct Hub {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    /// Requests with a token.
    tokens: Arc<AtomicUsize>,
    faults: Arc<Mutex<Faults>>,
}

impl Hub {
    fn start(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let hub = Self {
            endpoint: format!("http://{}", listener.local_addr().expect("address")),
            requests: Arc::default(),
            tokens: Arc::default(),
            faults: Arc::default(),
        };
        let (requests, faults) = (Arc::clone(&hub.requests), Arc::clone(&hub.faults));
        let tokens = Arc::clone(&hub.tokens);
        thread::spawn(move || {
            for stream in listener.incoming() {
                requests.fetch_add(1, Ordering::Relaxed);
                // The client may go away.
                let stream = stream.expect("accept");
                let _ = answer(&stream, &files, &tokens, &mut faults.lock().expect("lock"));
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

    /// Replaces the faults.
    fn fault(&self, set: impl FnOnce(&mut Faults)) {
        let mut faults = Faults::default();
        set(&mut faults);
        *self.faults.lock().expect("lock") = faults;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn tokens(&self) -> usize {
        self.tokens.load(Ordering::Relaxed)
    }
}

fn answer(
    mut stream: &TcpStream,
    files: &[(&str, Vec<u8>)],
    tokens: &AtomicUsize,
    faults: &mut Faults,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut start = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        tokens.fetch_add(
            usize::from(line.starts_with("authorization: ")),
            Ordering::Relaxed,
        );
        if let Some(range) = line.strip_prefix("range: bytes=") {
            let first = range.split('-').next().unwrap_or_default();
            start = first.parse().expect("range");
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let mut send = |status: &str, headers: &str, body: &str| {
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    if let Some(status) = faults.status {
        return send(&format!("{status} No"), "", "");
    }
    if path == "/api/models/some/model/revision/main" {
        let siblings = files.iter().map(|(name, _)| json!({"rfilename": name}));
        let siblings: Vec<_> = siblings.collect();
        let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return send("200 OK", "content-type: application/json\r\n", &body);
    }
    if let Some((status, wait, times)) = &mut faults.busy
        && *times > 0
    {
        *times -= 1;
        return send(
            &format!("{status} No"),
            &format!("retry-after: {wait}\r\n"),
            "",
        );
    }
    let name = path.strip_prefix(&format!("/some/model/resolve/{COMMIT}/"));
    let Some((name, bytes)) = files.iter().find(|(file, _)| Some(*file) == name) else {
        return send("404 Not Found", "", "");
    };
    let is_weights = !name.contains(".json");
    let mut body = bytes.clone();
    if (faults.flip && is_weights) || (faults.flip_config && !is_weights) {
        let last = body.len() - 3;
        body[last] ^= 1;
    }
    let total = body.len();
    let sent_from = match faults.ranges {
        Ranges::Refused if start > 0 => {
            let range = format!("content-range: bytes */{total}\r\n");
            return send("416 Range Not Satisfiable", &range, "");
        }
        Ranges::Sent | Ranges::Refused => start,
        Ranges::Other => start / 2,
        Ranges::Whole | Ranges::Ignored => 0,
    };
    let body = &body[sent_from.min(total)..];
    // As on the Hub: the SHA-256 of a large file, and git's hash of a small one.
    let etag = faults.etag.map(str::to_owned);
    let etag = etag.unwrap_or_else(|| hash(bytes, is_weights));
    let is_endless = faults.endless.filter(|_| is_weights && body.len() > 1);
    let length = match is_endless {
        Some(_) => String::new(),
        None => format!("content-length: {}\r\n", body.len()),
    };
    let (status, range) = match faults.ranges {
        Ranges::Ignored => ("200 OK", String::new()),
        _ => (
            "206 Partial Content",
            format!("content-range: bytes {sent_from}-{}/{total}\r\n", total - 1),
        ),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{length}{range}\
         etag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\nconnection: close\r\n\r\n",
    )?;
    if let Some(bytes) = is_endless {
        let zeros = vec![0; 1 << 16];
        return (0..bytes >> 16).try_for_each(|_| stream.write_all(&zeros));
    }
    let cut = faults.cut.filter(|_| is_weights).unwrap_or(body.len());
    stream.write_all(&body[..cut.min(body.len())])
}

/// The Hub's name of a file.
fn hash(bytes: &[u8], is_large: bool) -> String {
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

    fn snapshot(&self) -> PathBuf {
        self.cached().join("snapshots").join(COMMIT)
    }

    fn embed(&self, model: &str, out: &str) -> Command {
        let mut command = common::embed(&[&self.batches], model.as_ref(), &self.path(out));
        command.env("HF_HOME", self.path("hf"));
        for variable in ["HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"] {
            command.env_remove(variable);
        }
        for variable in ["all_proxy", "http_proxy", "https_proxy"] {
            let upper_case = variable.to_uppercase();
            command.env_remove(variable).env_remove(upper_case);
        }
        command
    }

    fn download(&self, model: &str, out: &str, hub: &Hub) -> Command {
        let mut command = self.embed(model, out);
        command.arg("--download").env("HF_ENDPOINT", &hub.endpoint);
        command
    }

    /// A run that must fail with this code and this last line, and leave no complete file.
    fn fails(&self, command: &mut Command, code: i32, what: &str) {
        let stderr = ends(command, code);
        let mut lines: Vec<&str> = stderr.lines().collect();
        assert_has(lines.pop().unwrap_or_default(), what);
        let fetching = lines.iter().all(|line| line.contains(": fetching "));
        assert!(fetching, "{stderr}");
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
    for (name, flip) in [("config.json", false), ("model.safetensors", true)] {
        let blob = case.snapshot().join(name).canonicalize().expect("blob");
        let whole = fs::read(&blob).expect("read");
        let mut changed = whole.clone();
        if flip {
            changed[whole.len() / 2] ^= 1;
        } else {
            // Another blank, which JSON permits.
            changed[1] = b' ';
        }
        fs::write(&blob, &changed).expect("write");
        let file = blob.file_name().expect("name").to_string_lossy();
        let what = format!("{file}: damaged: expected");
        assert_fails(case.embed("some/model", "e.parquet"), 65, &what);
        fs::write(&blob, &whole).expect("write");
    }
    run(&mut case.embed("some/model", "e.parquet"));
}

/// The same vectors, by a model of the Hub with its commit and by a folder.
fn assert_same_rows(hub: &Path, folder: &Path) {
    let [hub, folder] = [hub, folder].map(|path| EmbeddingsReader::open(path).expect("embeddings"));
    assert_eq!(hub.digest(), folder.digest());
    let name = |of: &EmbeddingsReader| of.provenance().model.clone().expect("a name");
    assert_eq!(name(&hub).name, "some/model");
    assert_eq!(name(&hub).revision.as_deref(), Some(COMMIT));
    assert!(name(&folder).name.starts_with("model-tiny"));
    assert_eq!(name(&folder).revision, None);
}

fn assert_same_bytes(one: &Path, other: &Path) {
    assert!(fs::read(one).expect("read") == fs::read(other).expect("read"));
}

#[test]
fn a_model_is_fetched_once_and_then_found_without_a_network() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let said = run(&mut case.download("some/model", "e.parquet", &hub));
    let fetching = "some/model: fetching model.safetensors, 1097272 bytes";
    assert_has(&said, fetching);
    let folder = test_data("model-tiny");
    run(&mut case.embed(folder.to_str().expect("path"), "folder.parquet"));
    assert_same_rows(&case.path("e.parquet"), &case.path("folder.parquet"));

    // The layout is that of the Hub's own library, without other files.
    let files = common::all(&case.snapshot());
    assert_eq!(files, ["config.json", "model.safetensors"]);
    let link = fs::read_link(case.snapshot().join("config.json")).expect("link");
    assert!(link.starts_with("../../blobs"), "{}", link.display());
    assert_eq!(common::all(&case.cached()), ["blobs", "refs", "snapshots"]);
    let main = fs::read_to_string(case.cached().join("refs/main"));
    assert_eq!(main.expect("ref"), COMMIT);

    let requests = hub.requests();
    run(&mut case.download("some/model", "again.parquet", &hub));
    assert_eq!(hub.requests(), requests, "cached files are not requested");
    for model in ["some/model".to_owned(), format!("some/model@{COMMIT}")] {
        let mut offline = case.embed(&model, "offline.parquet");
        run(offline.env("HF_HUB_OFFLINE", "1").arg("--force"));
        assert_same_bytes(&case.path("e.parquet"), &case.path("offline.parquet"));
    }
}

/// Weights of PyTorch in several files, with an index.
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
    let unwanted = [("tf_model.h5", Vec::new()), ("merges.txt", Vec::new())];
    let (case, hub) = (Case::new(), Hub::start([&content[..], &unwanted].concat()));
    hub.fault(|faults| faults.cut = Some(100_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(&mut command, 75, "-00001-of-00002.bin: cannot fetch: ");
    hub.fault(|_| {});
    run(&mut command);
    assert_eq!(common::all(&case.snapshot()), files);
    run(&mut case.embed(folder.to_str().expect("path"), "folder.parquet"));
    assert_same_rows(&case.path("e.parquet"), &case.path("folder.parquet"));
}

/// ESMC as it was first released: one file in a folder of its own. Its shapes describe the model.
#[test]
fn a_model_of_the_first_release() {
    let folder = test_data("model-tiny-esmc-pth");
    let name = "data/weights/esmc_tiny.pth";
    let weights = fs::read(folder.join(name)).expect("read");
    // Some versions have one, which tells nothing.
    let unread = [("README.md", Vec::new()), ("config.json", b"{}".to_vec())];
    let files = [&[(name, weights)][..], &unread].concat();
    let (case, hub) = (Case::new(), Hub::start(files));
    hub.fault(|faults| faults.cut = Some(10_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(
        &mut command,
        75,
        "data/weights/esmc_tiny.pth: cannot fetch: ",
    );
    hub.fault(|faults| faults.flip = true);
    case.fails(&mut command, 75, "expected SHA-256");
    hub.fault(|_| {});
    run(&mut command);
    assert_eq!(common::all(&case.snapshot()), ["config.json", "data"]);
    let link = fs::read_link(case.snapshot().join(name)).expect("link");
    assert!(link.starts_with("../../../../blobs"), "{}", link.display());
    run(&mut case.embed(folder.to_str().expect("path"), "folder.parquet"));
    assert_same_rows(&case.path("e.parquet"), &case.path("folder.parquet"));

    let requests = hub.requests();
    run(case
        .download("some/model", "e.parquet", &hub)
        .arg("--force"));
    assert_eq!(hub.requests(), requests, "cached files are not requested");
    let blob = case.snapshot().join(name).canonicalize().expect("blob");
    let mut changed = fs::read(&blob).expect("read");
    changed[20_000] ^= 1;
    fs::write(&blob, &changed).expect("write");
    assert_fails(
        case.embed("some/model", "other.parquet"),
        65,
        "damaged: expected SHA-256",
    );
}

/// What a folder has beside the weights is compared with them, from the Hub as well.
#[test]
fn the_ids_of_tokens_are_fetched() {
    let tiny = |name| fs::read(test_data("model-tiny").join(name)).expect("read");
    let files = |vocabulary: &[u8]| {
        vec![
            ("config.json", tiny("config.json")),
            ("model.safetensors", tiny("model.safetensors")),
            ("vocab.txt", vocabulary.to_vec()),
        ]
    };
    let (case, hub) = (
        Case::new(),
        Hub::start(files(b"<cls>\n<pad>\n<eos>\n<unk>\nL\n")),
    );
    run(&mut case.download("some/model", "e.parquet", &hub));
    let expected = ["config.json", "model.safetensors", "vocab.txt"];
    assert_eq!(common::all(&case.snapshot()), expected);

    let (case, hub) = (
        Case::new(),
        Hub::start(files(b"<cls>\n<pad>\n<eos>\n<unk>\nA\n")),
    );
    for mut command in [
        case.download("some/model", "e.parquet", &hub),
        case.embed("some/model", "e.parquet"),
    ] {
        let said = ends(&mut command, 65);
        assert_has(&said, "/vocab.txt: token 4: expected 'L', found 'A'");
    }
}

/// A pipe would wait for a writer, and a device has no end.
#[test]
fn files_of_the_cache_that_are_not_regular_are_named() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    run(&mut case.download("some/model", "first.parquet", &hub));
    let list = case.path("hf/hub/.locks/models--some--model/plmkit-verified");
    let blob = |name| case.snapshot().join(name).canonicalize().expect("blob");
    for (path, code) in [
        (case.cached().join("refs/main"), 66),
        (blob("config.json"), 66),
        (blob("model.safetensors"), 66),
        // It only saves time.
        (list, 0),
    ] {
        let saved = fs::read(&path).expect("read");
        for endless in [false, true] {
            fs::remove_file(&path).expect("remove");
            if endless {
                symlink("/dev/zero", &path).expect("link");
            } else {
                run(Command::new("mkfifo").arg(&path));
            }
            let mut command = case.embed("some/model", "e.parquet");
            if code == 0 {
                run(command.arg("--force"));
            } else {
                assert_fails(command, code, "not a regular file");
            }
        }
        fs::remove_file(&path).expect("remove");
        fs::write(&path, saved).expect("write");
    }
    let lock = case.path("hf/hub/.locks/models--some--model/plmkit.lock");
    for path in [&lock, &case.cached().join("refs/main")] {
        fs::remove_file(path).expect("remove");
    }
    run(Command::new("mkfifo").arg(&lock));
    let again = case.download("some/model", "e.parquet", &hub);
    assert_fails(again, 73, "plmkit.lock: cannot write: not a regular file");
}

#[test]
fn plmkit_fetches_a_model_and_prints_its_folder() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let fetch = |endpoint: &str| {
        let mut command = common::command(case.folder.path(), "plmkit fetch some/model");
        command
            .env("HF_HOME", case.path("hf"))
            .env("HF_ENDPOINT", endpoint);
        command.env_remove("HF_HUB_CACHE").output().expect("run")
    };
    let printed = format!("{}\n", case.snapshot().display());
    for (endpoint, is_here) in [(&*hub.endpoint, false), ("http://127.0.0.1:1", true)] {
        let output = fetch(endpoint);
        assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
        let said = stderr(&output);
        assert_eq!(
            said.contains("some/model: already there"),
            is_here,
            "{said}"
        );
        assert_eq!(said.contains(": fetching "), !is_here, "{said}");
    }
    let mut estimate = common::command(
        case.folder.path(),
        "plmkit estimate two.fasta --device cpu --dtype f32 --model some/model",
    );
    let estimate = estimate.env("HF_HOME", case.path("hf"));
    run(estimate.env_remove("HF_HUB_CACHE"));
    run(&mut case.embed("some/model", "e.parquet"));
    let config = case.snapshot().join("config.json").canonicalize();
    fs::write(config.expect("blob"), "{}").expect("write");
    let damaged = fetch(&hub.endpoint);
    assert_eq!(damaged.status.code(), Some(65), "{}", stderr(&damaged));
    assert!(damaged.stdout.is_empty());
    assert_has(&stderr(&damaged), "damaged: expected");
}

#[test]
fn a_model_that_is_not_there_is_not_fetched_unasked() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut unasked = case.embed("some/model", "e.parquet");
    unasked.env("HF_ENDPOINT", &hub.endpoint);
    let what = "some/model: no such file or folder, and not in the Hub's cache";
    case.fails(&mut unasked, 66, what);
    case.fails(&mut unasked, 66, "--download fetches it");
    let mut offline = case.download("some/model", "e.parquet", &hub);
    let offline = offline.env("HF_HUB_OFFLINE", "1");
    case.fails(offline, 66, "HF_HUB_OFFLINE is set");
    assert_eq!(hub.requests(), 0);
    assert!(!case.path("hf").exists(), "nothing is written either");
}

#[test]
fn a_server_that_does_not_have_it() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let no_such = "no such model, revision or file (404)";
    for (model, what) in [
        ("some/other", format!("/some/other: {no_such}")),
        ("some/model@v2", no_such.to_owned()),
    ] {
        let mut absent = case.download(model, "e.parquet", &hub);
        case.fails(&mut absent, 66, &what);
    }
    assert!(!case.path("hf").exists(), "a mistyped name leaves no files");

    let config = ("config.json", b"{}".to_vec());
    let no_weights = Hub::start(vec![config, ("model.onnx", vec![])]);
    let mut command = case.download("some/model", "e.parquet", &no_weights);
    let what = "/some/model: expected model.safetensors or";
    case.fails(&mut command, 66, what);
}

#[test]
fn a_server_that_dies_on_the_way() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    hub.fault(|faults| faults.cut = Some(400_000));
    let mut command = case.download("some/model", "e.parquet", &hub);
    case.fails(&mut command, 75, "model.safetensors: cannot fetch: ");
    // The next run does not take the partial files for a model.
    let mut offline = case.embed("some/model", "e.parquet");
    case.fails(&mut offline, 66, "not in the Hub's cache");
    let part = case
        .cached()
        .join(format!(".plmkit-download/{COMMIT}-model.safetensors"));
    assert_eq!(fs::metadata(part).expect("partial").len(), 400_000);
    // It continues them, or takes the whole file where the server does not permit that.
    let weights = case.snapshot().join("model.safetensors");
    for (ranges, requests) in [
        (Ranges::Sent, 2),
        (Ranges::Whole, 3),
        (Ranges::Ignored, 3),
        (Ranges::Other, 3),
        (Ranges::Refused, 3),
    ] {
        let (case, hub) = (Case::new(), Hub::of_tiny());
        hub.fault(|faults| faults.cut = Some(400_000));
        let mut command = case.download("some/model", "e.parquet", &hub);
        case.fails(&mut command, 75, "model.safetensors: cannot fetch: ");
        hub.fault(|faults| faults.ranges = ranges);
        let before = hub.requests();
        run(&mut command);
        // Of the model, then of its weights: config.json is there.
        assert_eq!(hub.requests() - before, requests, "{ranges:?}");
        let weights = case.snapshot().join("model.safetensors");
        assert_same_bytes(&weights, &test_data("model-tiny/model.safetensors"));
    }
    hub.fault(|faults| faults.ranges = Ranges::Ignored);
    run(&mut command);
    assert_same_bytes(&weights, &test_data("model-tiny/model.safetensors"));
}

/// A mirror that knows no ranges, from the first request on.
#[test]
fn a_server_without_ranges() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    hub.fault(|faults| faults.ranges = Ranges::Ignored);
    run(&mut case.download("some/model", "e.parquet", &hub));
    let weights = case.snapshot().join("model.safetensors");
    assert_same_bytes(&weights, &test_data("model-tiny/model.safetensors"));
}

#[test]
fn a_busy_server_is_asked_again_when_it_says() {
    let date = |seconds: i32| {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C")
            .args(["-u", "-d", &format!("{seconds} seconds")]);
        let date = date
            .arg("+%a, %d %b %Y %H:%M:%S GMT")
            .output()
            .expect("date");
        String::from_utf8(date.stdout)
            .expect("UTF-8")
            .trim()
            .to_owned()
    };
    for (status, told, times) in [
        (429, "1".to_owned(), 2),
        (503, date(1), 1),
        (429, date(-9), 1),
    ] {
        let (case, hub) = (Case::new(), Hub::of_tiny());
        hub.fault(|faults| faults.busy = Some((status, told, times)));
        let said = run(&mut case.download("some/model", "e.parquet", &hub));
        let what = format!("config.json: the server answers with status {status}; waiting ");
        assert_eq!(said.matches(&what).count(), times, "{said}");
    }
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut command = case.download("some/model", "e.parquet", &hub);
    for (told, what) in [
        (
            "601",
            "answers with status 429 and asks to wait 601 s, which is too long",
        ),
        ("18446744073709551615", "which is too long"),
        ("soon", "answers with status 429"),
    ] {
        hub.fault(|faults| faults.busy = Some((429, told.to_owned(), 1)));
        case.fails(&mut command, 75, what);
    }
    // A stop ends the wait.
    hub.fault(|faults| faults.busy = Some((429, "500".to_owned(), 1)));
    let requests = hub.requests();
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start");
    let mut said = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let waits = said.find(|line| line.as_ref().expect("line").contains("waiting 500 s"));
    assert!(waits.is_some());
    run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    assert_eq!(child.wait().expect("wait").signal(), Some(15));
    assert_eq!(hub.requests() - requests, 2);
}

/// Files go to another server, which gets no token, and the first one says what they are.
#[test]
fn a_server_that_redirects() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let (other, tokens) = (hub.endpoint.clone(), Arc::new(AtomicUsize::default()));
    let seen = Arc::clone(&tokens);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let has_token = lines.iter().any(|line| line.ends_with("Bearer hf_valid"));
            seen.fetch_add(usize::from(has_token), Ordering::Relaxed);
            let path = lines[0].split(' ').nth(1).unwrap_or_default();
            // A relative one first, as for a model that got another name.
            let to = match path.strip_prefix("/moved") {
                Some(path) => format!("{other}{path}"),
                None => format!("/moved{path}"),
            };
            let name = path.rsplit('/').next().unwrap_or_default();
            let bytes = fs::read(test_data("model-tiny").join(name)).unwrap_or_default();
            let _ = write!(
                stream,
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\nx-repo-commit: {COMMIT}\r\n\
                 x-linked-etag: \"{}\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                hash(&bytes, !name.contains(".json")),
            );
        }
    });
    let mut command = case.download("some/model", "e.parquet", &hub);
    command
        .env("HF_ENDPOINT", &endpoint)
        .env("HF_TOKEN", "hf_valid");
    run(&mut command);
    let weights = case.snapshot().join("model.safetensors");
    assert_same_bytes(&weights, &test_data("model-tiny/model.safetensors"));
    assert_eq!(
        tokens.load(Ordering::Relaxed),
        6,
        "two redirects of each request"
    );
    assert_eq!(hub.tokens(), 0);
}

#[test]
fn a_server_that_sends_something_else() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let mut command = case.download("some/model", "e.parquet", &hub);
    let too_many = "expected 1097272 bytes, the server sends more";
    let no_etag = "not an answer of a Hub: ETag '../../../escaped'";
    let git = "config.json: cannot fetch: expected git SHA-1 ";
    let unhashed = "ETag '5f3a-61b', expected a SHA-256 or a git SHA-1";
    let faults: [(SetFault, i32, &str); 7] = [
        (|it| it.flip_config = true, 75, git),
        (|it| it.flip = true, 75, "expected SHA-256 "),
        (|it| it.endless = Some(3 << 30), 75, too_many),
        (|it| it.etag = Some("../../../escaped"), 65, no_etag),
        (|it| it.etag = Some("5f3a-61b"), 65, unhashed),
        (|it| it.status = Some(503), 75, "answers with status 503"),
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

/// Another program put all files of a server that sends one `ETag` into one blob: the last of them.
#[test]
fn a_cache_in_which_files_overwrote_each_other_is_mended() {
    let (case, hub) = (Case::new(), Hub::of_tiny());
    let (blob, snapshot) = (case.cached().join("blobs/5f3a-61b"), case.snapshot());
    for folder in [
        &case.cached().join("blobs"),
        &case.cached().join("refs"),
        &snapshot,
    ] {
        fs::create_dir_all(folder).expect("create");
    }
    fs::write(
        &blob,
        fs::read(test_data("model-tiny/model.safetensors")).expect("read"),
    )
    .expect("write");
    for name in ["config.json", "model.safetensors"] {
        symlink("../../blobs/5f3a-61b", snapshot.join(name)).expect("link");
    }
    fs::write(case.cached().join("refs/main"), COMMIT).expect("write");
    let what = "no model.safetensors of its own); --download fetches it";
    assert_fails(case.embed("some/model", "e.parquet"), 66, what);
    let said = run(&mut case.download("some/model", "e.parquet", &hub));
    assert_has(
        &said,
        &format!("some/model: commit {COMMIT}, from the Hub's cache"),
    );
    run(&mut case.embed("some/model", "again.parquet"));
    assert_same_bytes(&case.path("e.parquet"), &case.path("again.parquet"));
}

#[test]
fn errors_of_a_token_name_the_token() {
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
        assert!(!stderr(&command.output().expect("run")).contains("secret"));
    }
    assert_eq!(hub.requests(), asked);
    hub.fault(|_| {});
    run(command.env("HF_TOKEN", "hf_valid\n"));
}

#[test]
fn a_server_that_is_absent_or_silent() {
    let case = Case::new();
    let mut command = case.embed("some/model", "e.parquet");
    command.arg("--download");
    command.env("HF_ENDPOINT", "ftp://elsewhere");
    case.fails(&mut command, 2, "HF_ENDPOINT: expected an address");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("address");
    command.env("HF_ENDPOINT", format!("http://{address}"));
    // It accepts and never answers, until the run is stopped.
    let mut child = command.spawn().expect("start");
    let (connection, _) = listener.accept().expect("accept");
    run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    assert_eq!(child.wait().expect("wait").signal(), Some(15));
    drop((connection, listener));
    case.fails(&mut command, 75, "cannot fetch: connection refused");
}
