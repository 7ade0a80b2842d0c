//! All programs with less and less memory (`ulimit -v`): whatever is refused, they end with 75 and one line.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{bin, run, test_data, with_memory};
use tempfile::TempDir;

/// A folder with a shard of some thousand proteins.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("temp folder");
    let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    let copies = (0..30).map(|copy| proteins.replace('>', &format!(">{copy}-")));
    fs::write(folder.path().join("in.fasta"), copies.collect::<String>()).expect("write");
    let cut = "in.fasta --shards 1 --out shards";
    run(&mut command(folder.path(), "fasta-shard", cut));
    folder
}

fn command(folder: &Path, program: &str, arguments: &str) -> Command {
    let mut command = bin(program);
    command.args(arguments.split(' ')).current_dir(folder);
    command
}

/// Runs a program that writes `out` with more and more MiB of address space until it succeeds three times in a row. What the kernel
/// and the loader refuse before it begins is theirs to say.
fn ladder(folder: &Path, program: &str, arguments: &str, limits: impl Iterator<Item = u64>) {
    let (mut refused, mut succeeded) = (0, 0);
    for mib in limits {
        for entry in fs::read_dir(folder.join("out")).into_iter().flatten() {
            let path = entry.expect("entry").path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        let mut limited = with_memory(&command(folder, program, arguments), mib);
        let output = limited.current_dir(folder).output().expect("sh starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let what = format!("{program}, {mib} MiB: {}: {stderr}", output.status);
        match output.status.code() {
            Some(0) => succeeded += 1,
            // Sequences that do not fit are listed, and the output is complete without them.
            Some(1) => assert!(stderr.contains("could not be embedded"), "{what}"),
            Some(127) => assert!(stderr.contains("shared libraries"), "{what}"),
            None if stderr.is_empty() && refused == 0 => {}
            code => {
                assert_eq!(code, Some(75), "{what}");
                // Threads fail together, and glibc has words of its own.
                let own = |line: &&str| !line.starts_with("Fatal glibc error: ");
                let own = stderr.lines().filter(own).count();
                assert!(own == 1 || own == 0 && !stderr.is_empty(), "{what}");
                (refused, succeeded) = (refused + 1, 0);
            }
        }
        if succeeded == 3 {
            assert!(refused > 0, "{program} was refused nothing");
            return;
        }
    }
    panic!("{program} never succeeded three times in a row");
}

#[test]
fn fasta_shard() {
    let folder = folder();
    fs::create_dir(folder.path().join("out")).expect("folder");
    let cut = "in.fasta --shards 2 --out out/shards";
    ladder(folder.path(), "fasta-shard", cut, 10..400);
}

#[test]
fn pack_batches() {
    let folder = folder();
    fs::create_dir(folder.path().join("out")).expect("folder");
    let pack = "shards/shard-00000.parquet --out out/b.arrow";
    ladder(folder.path(), "pack-batches", pack, 8..400);
}

#[cfg(feature = "torch")]
#[test]
fn what_computes_reports_and_validates() {
    let folder = folder();
    let folder = folder.path();
    std::os::unix::fs::symlink(test_data("model-tiny"), folder.join("model")).expect("link");
    fs::create_dir(folder.join("out")).expect("folder");
    fs::write(
        folder.join("in.fasta"),
        fs::read(test_data("proteins.fasta")).expect("read"),
    )
    .expect("write");
    let one = "--shards 1 --out few";
    run(&mut command(
        folder,
        "fasta-shard",
        &format!("in.fasta {one}"),
    ));
    let pack = "few/shard-00000.parquet --max-batch-tokens 1500 --out b.arrow";
    run(&mut command(folder, "pack-batches", pack));
    let embed = "b.arrow --model model --device cpu --threads 2 --progress none --residues";
    let made = format!("{embed} --out e.parquet --events e.jsonl");
    run(&mut command(folder, "gpu-embed", &made));

    let validate = "e.parquet --shards few/shard-00000.parquet --report out/report.json";
    ladder(folder, "validate-embeddings", validate, 12..400);
    // One run is reported on in next to no memory.
    let events = fs::read_to_string(folder.join("e.jsonl")).expect("events");
    let run = events.split('"').nth(7).expect("the run's id");
    let runs = (0..500).map(|copy| events.replace(run, &format!("{run}-{copy}")));
    fs::write(folder.join("runs.jsonl"), runs.collect::<String>()).expect("write");
    let report = "report --events runs.jsonl --out out/report.json";
    ladder(folder, "monitor-log", report, 12..400);
    // Under the first of these limits libtorch's libraries cannot be loaded.
    let embed = format!("{embed} --quiet --out out/e.parquet");
    ladder(folder, "gpu-embed", &embed, (350..3000).step_by(15));
}
