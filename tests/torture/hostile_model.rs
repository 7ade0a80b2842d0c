//! Models that claim too much.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{bin, test_data};
use crate::files::Files;
use crate::hostile::{LIBTORCH, refuses};

fn embed(files: &Files, model: &Path) -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg(files.batches())
        .arg("--model")
        .arg(model)
        .args(["--device", "cpu", "--threads", "1", "--out"])
        .arg(files.path("out.parquet"));
    command
}

/// The weights with another header.
fn with_header(weights: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = u64::from_le_bytes(weights[..8].try_into().expect("8 bytes")) as usize;
    let mut header: Value = serde_json::from_slice(&weights[8..8 + length]).expect("JSON");
    change(&mut header);
    let header = header.to_string();
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &weights[8 + length..],
    ]
    .concat()
}

const TENSOR: &str = "esm.encoder.layer.0.attention.self.query.weight";

#[test]
#[ignore = "slow: make torture"]
fn model() {
    let files = Files::new();
    let model = files.path("model");
    fs::create_dir(&model).expect("folder");
    let config = fs::read(test_data("model-tiny/config.json")).expect("read");
    let weights = fs::read(test_data("model-tiny/model.safetensors")).expect("read");
    let moved = |offsets: Value| {
        with_header(&weights, |header| {
            assert!(header[TENSOR].is_object(), "{TENSOR}");
            header[TENSOR]["data_offsets"] = offsets;
        })
    };
    let mut long = weights.clone();
    long[..8].copy_from_slice(&(4_u64 << 30).to_le_bytes());
    fs::write(model.join("config.json"), &config).expect("write");
    for (name, bytes) in [
        ("a safetensors header of 4 GiB", long),
        ("a tensor that overlaps another", moved(json!([0, 16384]))),
        (
            "a tensor outside the file",
            moved(json!([1_u64 << 40, (1_u64 << 40) + 16384])),
        ),
        ("weights that are nothing", Vec::new()),
    ] {
        fs::write(model.join("model.safetensors"), bytes).expect("write");
        refuses(name, &embed(&files, &model), LIBTORCH + 1024);
    }

    fs::write(model.join("model.safetensors"), &weights).expect("write");
    for (name, key, value) in [
        ("a model of 2^31 layers", "num_hidden_layers", 1_u64 << 31),
        ("a model of 2^40 channels", "hidden_size", 1 << 40),
        ("a model of 1024 layers", "num_hidden_layers", 1024),
        ("a model of 65536 channels", "hidden_size", 65536),
    ] {
        let mut changed: Value = serde_json::from_slice(&config).expect("JSON");
        changed[key] = value.into();
        fs::write(model.join("config.json"), changed.to_string()).expect("write");
        refuses(name, &embed(&files, &model), LIBTORCH + 1024);
    }
    fs::write(model.join("config.json"), " ".repeat(1 << 30)).expect("write");
    refuses(
        "a config.json of 1 GiB",
        &embed(&files, &model),
        LIBTORCH + 1024,
    );
}

/// A file of PyTorch that is made to claim, in its directory or in its pickle.
#[test]
#[ignore = "slow: make torture"]
fn pytorch_model() {
    let files = Files::new();
    let model = files.path("model");
    fs::create_dir(&model).expect("folder");
    fs::copy(
        test_data("model-tiny/config.json"),
        model.join("config.json"),
    )
    .expect("copy");
    let path = model.join("pytorch_model.bin");
    let whole = fs::read(test_data("smallest.bin")).expect("read");
    // In place: what comes after the pickle stays where the directory says that it is.
    let claim = whole.windows(3).position(|window| window == b"KBt");
    let mut storage = whole.clone();
    storage[claim.expect("a storage of 66 values") + 1] = 0xff;
    let mut directory = whole.clone();
    let end = directory.len() - 10;
    directory[end..end + 8].fill(0xfe);
    for (name, bytes) in [
        ("a storage of more values than its record", storage),
        ("a directory of 4 GiB", directory),
        ("a PyTorch file that is nothing", Vec::new()),
    ] {
        fs::write(&path, bytes).expect("write");
        refuses(name, &embed(&files, &model), LIBTORCH + 1024);
    }
    let hole = fs::File::options().write(true).open(&path);
    hole.and_then(|file| file.set_len(4 << 30)).expect("hole");
    // Mapped as a whole, and read at its end.
    let mapped = LIBTORCH + 1024 + (4 << 10);
    refuses(
        "a PyTorch file of 4 GiB of zeros",
        &embed(&files, &model),
        mapped,
    );
}
