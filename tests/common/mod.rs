//! What the tests of whole programs share.
#![allow(dead_code)] // each test file uses its part

#[cfg(feature = "torch")]
pub(crate) mod case;
pub(crate) mod pty;

use std::borrow::BorrowMut;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One of the five programs.
pub(crate) fn bin(name: &str) -> Command {
    Command::new(program(name))
}

/// Where it is.
pub(crate) fn program(name: &str) -> &'static str {
    match name {
        "fasta-shard" => env!("CARGO_BIN_EXE_fasta-shard"),
        "pack-batches" => env!("CARGO_BIN_EXE_pack-batches"),
        #[cfg(feature = "torch")]
        "gpu-embed" => env!("CARGO_BIN_EXE_gpu-embed"),
        "monitor-log" => env!("CARGO_BIN_EXE_monitor-log"),
        "validate-embeddings" => env!("CARGO_BIN_EXE_validate-embeddings"),
        _ => panic!("no program {name}"),
    }
}

/// What runs the program in its arguments as the first process of a namespace, as in a container. `None`, which is said, where
/// that is not permitted.
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

/// A file or folder of `test-data/`.
pub(crate) fn test_data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("test-data")
        .join(name)
}

/// Cuts a FASTA file into one shard in the folder `out`, and returns the shard.
pub(crate) fn shard(fasta: &Path, out: &Path, options: &[&str]) -> PathBuf {
    let mut shard = bin("fasta-shard");
    shard.arg(fasta).arg("--out").arg(out);
    run(shard.args(["--shards", "1"]).args(options));
    out.join("shard-00000.parquet")
}

/// Packs a shard into batches of so many tokens.
pub(crate) fn pack(shard: &Path, out: &Path, max_batch_tokens: u32) {
    let mut pack = bin("pack-batches");
    pack.arg(shard).arg("--out").arg(out);
    run(pack.args(["--max-batch-tokens", &max_batch_tokens.to_string()]));
}

/// A run of `gpu-embed` on the CPU.
#[cfg(feature = "torch")]
pub(crate) fn embed(batches: &[&Path], model: &Path, out: &Path) -> Command {
    let mut embed = bin("gpu-embed");
    embed.args(batches).arg("--model").arg(model);
    embed.arg("--out").arg(out);
    embed.args(["--device", "cpu", "--progress", "none"]);
    embed
}

/// A folder `name` in `folder` with the configuration of the tiny model and these weights.
pub(crate) fn model_of(folder: &Path, name: &str, weights: &[u8]) -> PathBuf {
    let model = folder.join(name);
    fs::create_dir(&model).expect("folder");
    fs::write(model.join("model.safetensors"), weights).expect("write");
    fs::copy(
        test_data("model-tiny/config.json"),
        model.join("config.json"),
    )
    .expect("copy");
    model
}

/// Runs a program that must succeed and returns what it says on standard error.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {:?}\n{stderr}",
        output.status
    );
    stderr
}

/// The same command with at most `mib` MiB of address space.
pub(crate) fn with_memory(command: &Command, mib: u64) -> Command {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg((mib << 10).to_string())
        .arg(command.get_program())
        .args(command.get_args());
    limited
}

/// The program ends with `code` and says so in one line that contains `what`.
pub(crate) fn assert_fails(mut command: impl BorrowMut<Command>, code: i32, what: &str) {
    let output = command.borrow_mut().output().expect("the program starts");
    assert_failed(&output, code, what);
}

/// The program ended with `code` and said so in one line that contains `what`.
pub(crate) fn assert_failed(output: &Output, code: i32, what: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(what), "expected '{what}' in: {stderr}");
    assert_eq!(
        stderr.trim_end().lines().count(),
        1,
        "expected one line: {stderr}"
    );
}

/// The names in a folder, sorted, without hidden ones.
pub(crate) fn visible(folder: &Path) -> Vec<String> {
    let mut names = all(folder);
    names.retain(|name| !name.starts_with('.'));
    names
}

/// The names in a folder, sorted.
pub(crate) fn all(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("folder")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// A small file system of its own, unmounted on drop.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts `kib` KiB; `None`, said aloud, where this user may not mount.
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
