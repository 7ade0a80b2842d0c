//! All programs under limits of memory (`ulimit -v`): a refusal ends them with 75 and one line.

use std::fs;
use std::path::Path;

use crate::common::{command, run, test_data, with_memory};
use tempfile::TempDir;

/// Creates a folder with a shard of some thousand proteins.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("temp folder");
    let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    let copies = (0..30).map(|copy| proteins.replace('>', &format!(">{copy}-")));
    fs::write(folder.path().join("in.fasta"), copies.collect::<String>()).expect("write");
    let shard = "fasta-shard in.fasta --shards 1 --out shards";
    run(&mut command(folder.path(), shard));
    fs::create_dir(folder.path().join("out")).expect("folder");
    folder
}

/// Runs a command that writes to `out` with more and more MiB of address space, until it succeeds three times in a row. The kernel,
/// the loader and Rust's runtime report refusals before the program begins in their own words.
fn ladder(folder: &Path, line: &str, limits: impl Iterator<Item = u64>) {
    let (mut refused, mut succeeded) = (0, 0);
    for mib in limits {
        for entry in fs::read_dir(folder.join("out")).into_iter().flatten() {
            let path = entry.expect("entry").path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        let mut limited = with_memory(&command(folder, line), mib);
        let output = limited.output().expect("sh starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let what = format!("{line}, {mib} MiB: {}: {stderr}", output.status);
        match output.status.code() {
            Some(0) => succeeded += 1,
            // Sequences that do not fit are listed, and the output is complete without them.
            Some(1) => assert!(stderr.contains("could not be embedded"), "{what}"),
            Some(127) => {
                let words = ["shared libraries", "cannot allocate TLS data"];
                assert!(words.iter().any(|words| stderr.contains(words)), "{what}");
            }
            // Rust's runtime aborts where only the stack of its signal handler is refused: some KiB of limits do that.
            None if refused == 0
                && (stderr.is_empty() || stderr.contains("an alternative stack")) => {}
            code => {
                assert_eq!(code, Some(75), "{what}");
                // Threads fail together, and glibc has its own message.
                let own = |line: &&str| !line.starts_with("Fatal glibc error: ");
                let own = stderr.lines().filter(own).count();
                assert!(own == 1 || own == 0 && !stderr.is_empty(), "{what}");
                (refused, succeeded) = (refused + 1, 0);
            }
        }
        if succeeded == 3 {
            assert!(refused > 0, "{line}: no refusal");
            return;
        }
    }
    panic!("{line}: never succeeded three times in a row");
}

#[test]
fn fasta_shard() {
    let line = "fasta-shard in.fasta --shards 2 --out out/shards";
    ladder(folder().path(), line, 10..400);
}

#[test]
fn pack_batches() {
    let line = "pack-batches shards/shard-00000.parquet --out out/b.arrow";
    ladder(folder().path(), line, 8..400);
}
#[test]
fn the_other_programs() {
    let folder = folder();
    let folder = folder.path();
    std::os::unix::fs::symlink(test_data("model-tiny"), folder.join("model")).expect("link");
    fs::copy(test_data("proteins.fasta"), folder.join("few.fasta")).expect("copy");
    let embed =
        "gpu-embed b.arrow --model model --device cpu --threads 2 --progress none --residues";
    for line in [
        "fasta-shard few.fasta --shards 1 --out few",
        "pack-batches few/shard-00000.parquet --max-batch-tokens 1500 --out b.arrow",
        &format!("{embed} --out e.parquet --events e.jsonl"),
    ] {
        run(&mut command(folder, line));
    }

    let validate =
        "validate-embeddings e.parquet --shards few/shard-00000.parquet --report out/report.json";
    ladder(folder, validate, 12..400);
    // A report of one run takes almost no memory.
    let events = fs::read_to_string(folder.join("e.jsonl")).expect("events");
    let run = events.split('"').nth(7).expect("the run's id");
    let runs = (0..500).map(|copy| events.replace(run, &format!("{run}-{copy}")));
    fs::write(folder.join("runs.jsonl"), runs.collect::<String>()).expect("write");
    let report = "monitor-log report --events runs.jsonl --out out/report.json";
    ladder(folder, report, 12..400);
    let embed = format!("{embed} --quiet --out out/e.parquet");
    ladder(folder, &embed, (12..1000).step_by(2));
}
