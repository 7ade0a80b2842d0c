//! Files that claim too much: programs refuse them at once, within 1 GiB of memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::common::{model_of, test_data, with_memory};
use crate::inputs::Inputs;
use crate::limited::{PATIENCE, run_for};

const GIB: u64 = 1 << 10;

/// The address space in MiB that `gpu-embed` needs for the test proteins, and some more.
const ENOUGH: u64 = 100;

/// Expects that the program refuses its input in time and within `mib` MiB.
fn refuses(name: &str, command: &Command, mib: u64) {
    let result = run_for(&mut with_memory(command, mib), PATIENCE);
    let seconds = result.took.as_secs_f64();
    println!("{name:<44} {seconds:>6.2} s  {}", result.stderr.trim_end());
    assert!(result.is_refusal(), "{name}: {result:?}");
}

/// Expects that `gpu-embed` refuses a model within `mib` MiB more than enough for a good one.
fn refuses_model(inputs: &Inputs, name: &str, mib: u64) {
    let line = "gpu-embed batches.arrow --model model --device cpu --threads 1 --out out.parquet";
    refuses(name, &inputs.command(line), ENOUGH + mib);
}

#[test]
#[ignore = "slow: make torture"]
fn ends_of_files() {
    let inputs = Inputs::with_batches(1, 100, 2000);
    let [parquet, ipc] = ["set/shard-00000.parquet", "batches.arrow"]
        .map(|name| fs::read(inputs.path(name)).expect("read"));
    // The number of segments is followed by a hash (16 bytes) and a magic string.
    let segments = |file: &[u8]| {
        let magic = file.windows(8).rposition(|bytes| bytes == b"plmkit-x");
        let at = magic.expect("checksums") - 24;
        let many = u64::MAX / 20;
        [&file[..at], &many.to_le_bytes(), &file[at + 8..]].concat()
    };
    let footer = |file: &[u8], magic: &[u8], bytes: u32| {
        let end = file.len() - magic.len() - 4;
        [&file[..end], &bytes.to_le_bytes(), magic].concat()
    };
    let large_footer = footer(&parquet, b"PAR1", u32::MAX);
    for (name, bytes) in [
        ("a shard with a footer of 4 GiB", large_footer),
        ("a shard of 2^59 segments", segments(&parquet)),
        ("a shard of 8 bytes", footer(b"abcdefgh", b"PAR1", 0)),
    ] {
        inputs.write("hostile.parquet", &bytes);
        let pack = inputs.command("pack-batches hostile.parquet --out out");
        refuses(name, &pack, GIB);
    }
    let large_footer = footer(&ipc, b"ARROW1", i32::MAX as u32);
    for (name, bytes) in [
        ("batches with a footer of 2 GiB", large_footer),
        ("batches of 2^59 segments", segments(&ipc)),
    ] {
        inputs.write("hostile.arrow", &bytes);
        let embed = "gpu-embed hostile.arrow --model model-tiny --device cpu --threads 1 --out out";
        refuses(name, &inputs.command(embed), ENOUGH + GIB);
    }
}

/// Writes a file that decompresses to about 10 GB: `head`, then `line` repeated, in members or frames of 10 MB.
fn bomb(path: &Path, head: &[u8], line: &[u8], compress: fn(&[u8]) -> Vec<u8>) {
    let mut file = File::create(path).expect("create");
    file.write_all(&compress(head)).expect("write");
    let frame = compress(&line.repeat(10_000_000 / line.len()));
    file.write_all(&frame.repeat(1000)).expect("write");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory")
}

#[test]
#[ignore = "slow: make torture"]
fn fasta_bombs() {
    let inputs = Inputs::new(1);
    for (name, head, line) in [
        ("10 GB of one residue", &b">a\n"[..], &b"A"[..]),
        ("10 GB of short lines", b">a\n", b"MKVLA\n"),
        ("10 GB of blank lines", b"\n", b"\n"),
        ("10 GB of one header", b">", b"a"),
    ] {
        for compress in [gzip, zstd] {
            bomb(&inputs.path("bomb"), head, line, compress);
            let line = "fasta-shard bomb --shards 1 --out bombed";
            refuses(name, &inputs.command(line), GIB);
        }
    }
}

/// Changes the header of safetensors weights.
fn with_header(weights: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (length, rest) = weights.split_first_chunk().expect("8 bytes");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("JSON");
    change(&mut header);
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), tensors].concat()
}

#[test]
#[ignore = "slow: make torture"]
fn models() {
    const TENSOR: &str = "esm.encoder.layer.0.attention.self.query.weight";
    let inputs = Inputs::with_batches(1, 100, 2000);
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
    let outside = moved(json!([1_u64 << 40, (1_u64 << 40) + 16384]));
    model_of(&inputs.path(""), "model", &weights);
    for (name, bytes) in [
        ("a safetensors header of 4 GiB", long),
        ("a tensor that overlaps another", moved(json!([0, 16384]))),
        ("a tensor outside the file", outside),
        ("empty weights", Vec::new()),
    ] {
        inputs.write("model/model.safetensors", &bytes);
        refuses_model(&inputs, name, GIB);
    }

    inputs.write("model/model.safetensors", &weights);
    for (name, key, value) in [
        ("a model of 2^31 layers", "num_hidden_layers", 1_u64 << 31),
        ("a model of 2^40 channels", "hidden_size", 1 << 40),
        ("a model of 1024 layers", "num_hidden_layers", 1024),
        ("a model of 65536 channels", "hidden_size", 65536),
    ] {
        let mut changed: Value = serde_json::from_slice(&config).expect("JSON");
        changed[key] = value.into();
        inputs.write("model/config.json", changed.to_string().as_bytes());
        refuses_model(&inputs, name, GIB);
    }
    inputs.write("model/config.json", &vec![b' '; 1 << 30]);
    refuses_model(&inputs, "a config.json of 1 GiB", GIB);
}

/// PyTorch files that claim too much in their directory or in their pickle.
#[test]
#[ignore = "slow: make torture"]
fn pytorch_models() {
    let inputs = Inputs::with_batches(1, 100, 2000);
    let model = model_of(&inputs.path(""), "model", &[]);
    fs::remove_file(model.join("model.safetensors")).expect("remove");
    let whole = fs::read(test_data("smallest.bin")).expect("read");
    // Changed in place, so that the bytes after the pickle stay at the offsets of the directory.
    let claim = whole.windows(3).position(|window| window == b"KBt");
    let mut storage = whole.clone();
    storage[claim.expect("a storage of 66 values") + 1] = 0xff;
    let mut directory = whole.clone();
    let end = directory.len() - 10;
    directory[end..end + 8].fill(0xfe);
    for (name, bytes) in [
        ("a storage of more values than its record", storage),
        ("a directory of 4 GiB", directory),
        ("an empty PyTorch file", Vec::new()),
    ] {
        inputs.write("model/pytorch_model.bin", &bytes);
        refuses_model(&inputs, name, GIB);
    }
    let file = File::options()
        .write(true)
        .open(model.join("pytorch_model.bin"));
    file.and_then(|file| file.set_len(4 << 30)).expect("hole");
    // The whole file is mapped, and read at its end.
    refuses_model(&inputs, "a PyTorch file of 4 GiB of zeros", GIB + (4 << 10));
}
