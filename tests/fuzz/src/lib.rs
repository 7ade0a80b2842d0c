//! What the fuzz targets share: bytes as a file, the verdict on an error, and a mutation that keeps footers in place.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{panic, process};

use libfuzzer_sys::fuzzer_mutate;
use plmkit_contract::{Exit, Failure, Stop, is_guarded};
use plmkit_esm2::{Esm2, Setup};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// A panic that a reader turns into an error is no finding; libFuzzer's own hook would abort there.
pub fn let_readers_catch_panics() {
    panic::set_hook(Box::new(|info| {
        if !is_guarded() {
            eprintln!("{info}");
            process::abort();
        }
    }));
}

/// Hands `bytes` to `read` as the programs have theirs: a file with a path. It lies in memory.
pub fn as_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let file = memfd_create("input", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory");
    read(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        file.as_raw_fd()
    )))
}

/// The value, if there is one. Bytes that are there and cannot be used are bad data, said in one line, and nothing
/// else.
pub fn judged<T>(result: Result<T, impl Failure + std::error::Error>) -> Option<T> {
    result
        .inspect_err(|error| {
            let message = error.to_string();
            // What Git LFS has in place of a file is none.
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
    if let Some(model) = judged(Esm2::load(folder, Setup::default(), &Stop::default())) {
        assert_eq!((model.config().layers, model.config().hidden), (1, 2));
    }
}

/// Mutates a file that ends in a footer, the footer's length (u32, little-endian) and `magic`, as Parquet and Arrow
/// IPC files do. Blind mutations mostly move the footer, and the file is refused before anything in it is looked at.
///
/// Takes and returns what a custom mutator of libFuzzer does: `data[..size]` is the file, `data` all the room.
pub fn mutate_footed(data: &mut [u8], size: usize, seed: u32, magic: &[u8]) -> usize {
    let room = data.len();
    let Some(footer) = footer(&data[..size], magic).filter(|_| seed % 4 != 0) else {
        return fuzzer_mutate(data, size, room);
    };
    if seed % 2 == 0 || footer.start == 0 {
        let trailer = size - footer.end;
        let mut text = data[footer.clone()].to_vec();
        let length = text.len();
        text.resize(room - footer.start - trailer, 0);
        let length = fuzzer_mutate(&mut text, length, room - footer.start - trailer);
        let end = footer.start + length;
        data[footer.start..end].copy_from_slice(&text[..length]);
        data[end..end + 4].copy_from_slice(&(length as u32).to_le_bytes());
        data[end + 4..end + trailer].copy_from_slice(magic);
        end + trailer
    } else {
        // What the footer points to stays where it is.
        let start = seed as usize / 4 % footer.start;
        let window = &mut data[start..footer.start.min(start + 64)];
        fuzzer_mutate(window, window.len(), window.len());
        size
    }
}

/// Where the footer of `file` lies.
fn footer(file: &[u8], magic: &[u8]) -> Option<std::ops::Range<usize>> {
    let (body, length) = file.strip_suffix(magic)?.split_last_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    Some(body.len().checked_sub(length)?..body.len())
}
