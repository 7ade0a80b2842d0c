//! Data files that claim too much: refused at once, within 1 GiB of memory.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::{bin, test_data, with_memory};
use crate::files::Files;
use crate::limited::{PATIENCE, run_for};

const GIB: u64 = 1 << 10;

/// What `gpu-embed` needs of address space, in MiB, to embed the test proteins at all: libtorch alone maps 400.
pub(crate) const LIBTORCH: u64 = 600;

/// The program refuses its input in time and within `mib` MiB.
pub(crate) fn refuses(name: &str, command: &Command, mib: u64) {
    let ended = run_for(&mut with_memory(command, mib), PATIENCE);
    println!(
        "{name:<44} {:>6.2} s  {}",
        ended.took.as_secs_f64(),
        ended.stderr.trim_end()
    );
    assert!(ended.refused(), "{name}: {ended:?}");
}

fn pack(shard: &Path, out: &Path) -> Command {
    let mut command = bin("pack-batches");
    command.arg(shard).arg("--out").arg(out);
    command
}

fn embed(batches: &Path, out: &Path) -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg(batches)
        .arg("--model")
        .arg(test_data("model-tiny"))
        .args(["--device", "cpu", "--threads", "1", "--out"])
        .arg(out);
    command
}

#[test]
#[ignore = "slow: make torture"]
fn ends_of_files() {
    let files = Files::new();
    let (shard, batches) = (files.shard(), files.batches());
    let [parquet, ipc] = [&shard, &batches].map(|path| fs::read(path).expect("read"));
    let out = files.path("out");
    // The number of segments lies before a hash, a magic string and what they cover.
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
    for (name, bytes) in [
        (
            "a shard with a footer of 4 GiB",
            footer(&parquet, b"PAR1", u32::MAX),
        ),
        ("a shard of 2^59 segments", segments(&parquet)),
        ("a shard of 8 bytes", footer(b"abcdefgh", b"PAR1", 0)),
    ] {
        let hostile = files.write("hostile.parquet", &bytes);
        refuses(name, &pack(&hostile, &out), GIB);
    }
    for (name, bytes) in [
        (
            "batches with a footer of 2 GiB",
            footer(&ipc, b"ARROW1", i32::MAX as u32),
        ),
        ("batches of 2^59 segments", segments(&ipc)),
    ] {
        let hostile = files.write("hostile.arrow", &bytes);
        refuses(name, &embed(&hostile, &out), LIBTORCH + GIB);
    }
}

/// About 10 GB: `head`, then `line` for ever, as members or frames that decompress to 10 MB each.
fn bomb(path: &Path, head: &[u8], line: &[u8], compress: impl Fn(&[u8]) -> Vec<u8>) {
    let mut file = fs::File::create(path).expect("create");
    file.write_all(&compress(head)).expect("write");
    let frame = compress(&line.repeat(10_000_000 / line.len()));
    file.write_all(&frame.repeat(1000)).expect("write");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
#[ignore = "slow: make torture"]
fn fasta_bombs() {
    let files = Files::new();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("memory");
    for (name, head, line) in [
        ("10 GB of one residue", &b">a\n"[..], &b"A"[..]),
        ("10 GB of short lines", b">a\n", b"MKVLA\n"),
        ("10 GB of blank lines", b"\n", b"\n"),
        ("10 GB of one header", b">", b"a"),
    ] {
        for format in ["gz", "zst"] {
            let path = files.path(&format!("bomb.{format}"));
            if format == "gz" {
                bomb(&path, head, line, gzip);
            } else {
                bomb(&path, head, line, zstd);
            }
            let mut command = bin("fasta-shard");
            command
                .arg(&path)
                .args(["--shards", "1", "--out"])
                .arg(files.path("bombed"));
            refuses(&format!("{name}, {format}"), &command, GIB);
        }
    }
}
