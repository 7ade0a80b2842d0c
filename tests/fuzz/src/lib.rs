//! Shared parts of the fuzz targets: bytes as a file, and checks of errors.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use plmkit_kit::{Exit, Failure, Stop};
use plmkit_esm2::{Esm2, ComputeOptions};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// Gives `bytes` to `read` as a file in memory, with a path.
pub fn as_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let file = memfd_create("input", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory");
    read(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        file.as_raw_fd()
    )))
}

/// Returns the value, if any. Expects that an error is bad data on one line.
pub fn judged<T>(result: Result<T, impl Failure + std::error::Error>) -> Option<T> {
    result
        .inspect_err(|error| {
            let message = error.to_string();
            // A Git LFS pointer is a missing input.
            let expected = match error.exit() {
                Exit::NoInput if message.contains("Git LFS pointer") => Exit::NoInput,
                _ => Exit::Data,
            };
            assert_eq!(error.exit(), expected, "{message}");
            assert!(!message.contains(char::is_control), "{message:?}");
        })
        .ok()
}

/// The smallest ESM-2, without weights.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let config =
        br#"{"model_type": "esm", "position_embedding_type": "rotary", "token_dropout": true,
        "vocab_size": 33, "num_hidden_layers": 1, "hidden_size": 2, "num_attention_heads": 1,
        "intermediate_size": 1, "layer_norm_eps": 1e-5}"#;
    fs::write(folder.path().join("config.json"), config).expect("memory");
    folder
});

/// Loads the smallest ESM-2 with `bytes` for its weight file `name`.
pub fn load_with(name: &str, bytes: &[u8]) {
    let folder = FOLDER.path();
    fs::write(folder.join(name), bytes).expect("memory");
    if let Some(model) = judged(Esm2::load(folder, ComputeOptions::default(), &Stop::default())) {
        assert_eq!((model.info().config().layers, model.info().config().hidden), (1, 2));
    }
}
