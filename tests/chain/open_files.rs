//! All programs under limits of open files (`ulimit -n`): a refusal ends them with 74 and one line.

use std::path::Path;
use std::process::Command;

use crate::common::{command, run, test_data};

/// Runs a command with more and more open files, until it succeeds three times in a row.
fn ladder(folder: &Path, line: &str) {
    let (mut refused, mut succeeded) = (0, 0);
    // The loader needs one more than the three streams.
    for limit in 4..100 {
        let command = command(folder, line);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &limit.to_string()]);
        limited.arg(command.get_program()).args(command.get_args());
        let output = limited.current_dir(folder).output().expect("sh starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let what = format!("{line}, {limit} files: {}: {stderr}", output.status);
        match output.status.code() {
            Some(0) => succeeded += 1,
            Some(127) => assert!(stderr.contains("shared libraries"), "{what}"),
            code => {
                assert_eq!(code, Some(74), "{what}");
                let own = format!("{}: ", line.split(' ').next().unwrap_or_default());
                assert!(
                    stderr.starts_with(&own) && stderr.ends_with("too many open files\n"),
                    "{what}"
                );
                assert_eq!(stderr.lines().count(), 1, "{what}");
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
fn too_many_open_files() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    for name in ["proteins.fasta", "model-tiny"] {
        std::os::unix::fs::symlink(test_data(name), folder.join(name)).expect("link");
    }
    let embed = "gpu-embed b.arrow --model model-tiny --device cpu --progress none --quiet --force";
    let events = format!("{embed} --out e.parquet --events e.jsonl");
    let lines = [
        "fasta-shard proteins.fasta --shards 1 --out shards --quiet --force",
        "pack-batches shards/shard-00000.parquet --max-batch-tokens 2000 --out b.arrow --quiet --force",
        &events[..],
        "validate-embeddings e.parquet --shards shards/shard-00000.parquet --report report.json --quiet",
        "monitor-log report --events e.jsonl --out monitor.json --quiet",
        "monitor-log record --out gpu.csv --quiet -- true",
    ];
    for line in lines {
        run(&mut command(folder, line));
        ladder(folder, line);
    }
}
