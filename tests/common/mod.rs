//! Shared parts of the tests of whole programs.
#![allow(dead_code)] // each test uses some of it
pub(crate) mod case;
pub(crate) mod pty;

use std::borrow::BorrowMut;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One of the programs.
pub(crate) fn bin(name: &str) -> Command {
    Command::new(program(name))
}

/// A command line, such as `pack-batches s.parquet --out b.arrow`, run in `folder`.
pub(crate) fn command(folder: &Path, line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = bin(words.next().unwrap_or_default());
    command.args(words).current_dir(folder);
    command
}

/// Returns the path of one of the programs.
pub(crate) fn program(name: &str) -> &'static str {
    match name {
        "plmkit" => env!("CARGO_BIN_EXE_plmkit"),
        "fasta-shard" => env!("CARGO_BIN_EXE_fasta-shard"),
        "pack-batches" => env!("CARGO_BIN_EXE_pack-batches"),
        "gpu-embed" => env!("CARGO_BIN_EXE_gpu-embed"),
        "monitor-log" => env!("CARGO_BIN_EXE_monitor-log"),
        "validate-embeddings" => env!("CARGO_BIN_EXE_validate-embeddings"),
        "query-embeddings" => env!("CARGO_BIN_EXE_query-embeddings"),
        _ => panic!("no program {name}"),
    }
}

/// Copies a program to a folder. `cp` does, since a process that another test starts would inherit a file that this one writes, and a
/// program that is written does not start.
pub(crate) fn copied(name: &str, folder: &Path) -> PathBuf {
    run(Command::new("cp").arg(program(name)).arg(folder));
    folder.join(name)
}

/// Returns a command that runs the program in its arguments as the first process of a namespace, as in a container. `None`, with a
/// message, if that is not permitted.
pub(crate) fn first_process() -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]);
        command
    };
    let allowed = unshare().arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: a process namespace needs the right to make one");
        return None;
    }
    Some(unshare())
}

/// Returns the path of a file or folder of `test-data/`.
pub(crate) fn test_data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("test-data")
        .join(name)
}

/// Makes one shard of a FASTA file in the folder `out`, and returns it.
pub(crate) fn shard(fasta: &Path, out: &Path, options: &[&str]) -> PathBuf {
    let mut shard = bin("fasta-shard");
    shard.arg(fasta).arg("--out").arg(out);
    run(shard.args(["--shards", "1"]).args(options));
    out.join("shard-00000.parquet")
}

/// Packs a shard into batches of at most `max_batch_tokens`.
pub(crate) fn pack(shard: &Path, out: &Path, max_batch_tokens: u32) {
    let mut pack = bin("pack-batches");
    pack.arg(shard).arg("--out").arg(out);
    run(pack.args(["--max-batch-tokens", &max_batch_tokens.to_string()]));
}

/// Returns a run of `gpu-embed` on the CPU.
pub(crate) fn embed(batches: &[&Path], model: &Path, out: &Path) -> Command {
    let mut embed = bin("gpu-embed");
    embed.args(batches).arg("--model").arg(model);
    embed.arg("--out").arg(out);
    embed.args(["--device", "cpu", "--progress", "none"]);
    embed
}

/// Creates a model folder `name` in `folder`, with the configuration of the tiny model and these weights.
pub(crate) fn model_of(folder: &Path, name: &str, weights: &[u8]) -> PathBuf {
    let model = folder.join(name);
    fs::create_dir(&model).expect("folder");
    fs::write(model.join("model.safetensors"), weights).expect("write");
    let config = test_data("model-tiny/config.json");
    fs::copy(config, model.join("config.json")).expect("copy");
    model
}

/// A model whose vectors are not finite for proteins with pyrrolysine: the sum of its channels overflows.
pub(crate) fn poisoned_model(folder: &Path, name: &str) -> PathBuf {
    const PYRROLYSINE: usize = 28;
    const HIDDEN: usize = 64;
    let mut bytes = fs::read(test_data("model-tiny/model.safetensors")).expect("weights");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).expect("JSON");
    let embedding = &tensors["esm.embeddings.word_embeddings.weight"]["data_offsets"][0];
    let embedding = embedding.as_u64().expect("offset") as usize;
    let row = 8 + header + embedding + PYRROLYSINE * HIDDEN * 4;
    bytes[row..row + HIDDEN * 4].copy_from_slice(&f32::MAX.to_le_bytes().repeat(HIDDEN));
    model_of(folder, name, &bytes)
}

/// Runs a program that must succeed, and returns its standard error.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status;
    assert!(status.success(), "{command:?}: {status}\n{stderr}");
    stderr
}

/// Returns the command with a limit of `mib` MiB of address space.
pub(crate) fn with_memory(command: &Command, mib: u64) -> Command {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg((mib << 10).to_string())
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}

/// Builds `tests/fixtures/monitor_log/fake_nvml.c`, a driver of two GPUs, into the file `library`.
pub(crate) fn compile_driver(library: &Path, options: &[&str]) {
    // What it knows outlives a program that closes and opens it.
    let options = [options, &["-Wl,-z,nodelete"]].concat();
    compile("monitor_log/fake_nvml.c", library, &options);
}

/// Builds `tests/fixtures/failing_calls.c`, a library for `LD_PRELOAD`.
pub(crate) fn failing_calls(folder: &Path) -> PathBuf {
    let library = folder.join("failing_calls.so");
    compile("failing_calls.c", &library, &[]);
    library
}

fn compile(fixture: &str, library: &Path, options: &[&str]) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut compiler = Command::new("cc");
    compiler.args(options).args(["-shared", "-fPIC", "-o"]);
    run(compiler.arg(library).arg(fixtures.join(fixture)));
}

/// Expects that the program ends with `code` and one line that contains `what`.
pub(crate) fn assert_fails(mut command: impl BorrowMut<Command>, code: i32, what: &str) {
    let output = command.borrow_mut().output().expect("the program starts");
    assert_failed(&output, code, what);
}

/// Expects that the program ended with `code` and one line that contains `what`.
pub(crate) fn assert_failed(output: &Output, code: i32, what: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(what), "expected '{what}' in: {stderr}");
    let lines = stderr.trim_end().lines().count();
    assert_eq!(lines, 1, "expected one line: {stderr}");
}

/// Lists the names in a folder, sorted, without hidden ones.
pub(crate) fn visible(folder: &Path) -> Vec<String> {
    let mut names = all(folder);
    names.retain(|name| !name.starts_with('.'));
    names
}

/// Lists the names in a folder that begin with `prefix`, sorted.
pub(crate) fn files_in(folder: &Path, prefix: &str) -> Vec<String> {
    let mut names = all(folder);
    names.retain(|name| name.starts_with(prefix));
    names
}

/// Lists the names in a folder, sorted.
pub(crate) fn all(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("folder");
    let names = entries.map(|entry| entry.expect("entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The files below a folder, with hidden ones, by their relative paths.
pub(crate) type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Reads all files below `folder`; a missing folder has none.
pub(crate) fn tree(folder: &Path) -> Tree {
    let files = paths(folder).into_iter().map(|path| {
        let bytes = fs::read(&path).expect("read");
        let path = path.strip_prefix(folder).expect("below it").to_owned();
        (path, bytes)
    });
    files.collect()
}

/// Lists the files below a folder, with hidden ones.
pub(crate) fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            found.extend(paths(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// A small file system, unmounted on drop.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts a tmpfs of `kib` KiB; `None`, with a message, if that is not permitted.
    pub(crate) fn mount(kib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().expect("temp folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(folder.path())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            Some(Self(folder))
        } else {
            eprintln!("SKIPPED: a full disk needs the right to mount a tmpfs");
            None
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
