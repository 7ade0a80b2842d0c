//! A batch that crashes `gpu-embed` twice is given up. A kill is no crash, whenever it comes.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use plmkit_kit::Stop;
use plmkit_store::BatchesFile;

use crate::common::case::{Case, SIGKILL, SIGTERM, in_windows, rejects, send};
use crate::common::{all, run};
use crate::{assert_has, ends, validate_shard, wait_until};

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;
const LINE: &str = "two runs crashed while they computed it; its sequences are listed as rejected";

/// What a run does instead of the abort of an injected failure.
fn instead_of_abort(case: &Case, what: &str) -> PathBuf {
    let [source, library] = ["shards/abort.c", "shards/abort.so"].map(|name| case.path(name));
    let text = format!("#include <unistd.h>\nvoid abort(void) {{ {what} }}\n");
    fs::write(&source, text).expect("write");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-w", "-shared", "-fPIC", "-o"])
        .arg(&library);
    run(compiler.arg(source));
    library
}

fn crashing(case: &Case, ordinal: u64, saves: &str) -> Command {
    let mut embed = case.embed_saving("e.parquet", saves);
    embed.args(["--inject", &format!("abort={ordinal}")]);
    embed
}

/// Runs until the process crashes.
fn crash(embed: &mut Command, signal: i32) {
    let output = embed.output().expect("run");
    assert_eq!(output.status.signal(), Some(signal), "{output:?}");
}

/// The ordinals of the batches with one of these sequences.
fn batches_of(batches: &Path, wanted: &[u64]) -> Vec<u64> {
    let file = BatchesFile::open(batches, &Stop::default()).expect("batches");
    let batches =
        (0..file.len()).map(|batch| file.batch(batch).expect("batch").ordinals().to_vec());
    let mut found = batches
        .filter(|batch| wanted.iter().any(|ordinal| batch.contains(ordinal)))
        .collect::<Vec<_>>()
        .concat();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_batch_that_crashes_twice_is_given_up_and_no_other() {
    let case = Case::new();
    let expected = case.undisturbed();
    let fault = instead_of_abort(&case, "*(volatile int *)0 = 0;");
    for signal in [SIGABRT, SIGSEGV] {
        let embed = || {
            let mut embed = crashing(&case, 42, "10ms");
            if signal == SIGSEGV {
                embed.env("LD_PRELOAD", &fault);
            }
            embed
        };
        crash(&mut embed(), signal);
        crash(&mut embed(), signal);
        let said = ends(&mut embed(), 1);
        assert_eq!(said.matches(LINE).count(), 1, "{said}");
        let lost = batches_of(&case.path("b.arrow"), &[42]);
        let listed = rejects(&case.path("e.rejects.csv"));
        assert_eq!(
            listed,
            lost.into_iter()
                .map(|row| (row, "worker_lost".to_owned()))
                .collect::<Vec<_>>()
        );
        let mut validate = validate_shard(
            &case.path("e.parquet"),
            &case.path("shards/shard-00000.parquet"),
        );
        validate.arg("--rejects").arg(case.path("e.rejects.csv"));
        assert_has(&run(&mut validate), "validate-embeddings: pass: ");
        assert!(!case.path(".e.parquet.plmkit-run").exists());
        // A complete output is made again without the marks.
        run(case.embed("e.parquet").arg("--force"));
        case.assert_complete("e.parquet", &expected);
        fs::remove_file(case.path("e.parquet")).expect("remove");
    }
}

#[test]
fn kills_at_the_same_batch_reject_nothing() {
    let case = Case::new();
    let expected = case.undisturbed();
    let hang = instead_of_abort(&case, "write(2, \"hangs\\n\", 6); for (;;) pause();");
    for signal in [SIGKILL, SIGKILL, SIGABRT, SIGABRT, SIGTERM] {
        let mut child = crashing(&case, 42, "10ms")
            .env("LD_PRELOAD", &hang)
            .stderr(fs::File::create(case.path("shards/said")).expect("file"))
            .spawn()
            .expect("spawn");
        wait_until(&mut child, || {
            fs::read_to_string(case.path("shards/said")).is_ok_and(|said| said.contains("hangs"))
        });
        send(&child, signal);
        // With the others, it waits for the batch.
        send(&child, SIGKILL);
        assert!(child.wait().expect("wait").signal().is_some());
    }
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn one_crash_and_the_marks_of_other_work_reject_nothing() {
    let case = Case::new();
    let expected = case.undisturbed();
    let saved = case.path(".e.parquet.plmkit-run");
    for pool in ["mean", "max"] {
        crash(crashing(&case, 0, "1h").args(["--pool", pool]), SIGABRT);
    }
    assert!(all(&saved).contains(&"crashes".to_owned()));
    let marks = fs::read_to_string(saved.join("crashes")).expect("marks");
    assert_eq!(marks.lines().count(), 2, "{marks}");
    fs::write(saved.join("crashes"), marks + "no mark\n\n12\n").expect("write");
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn proteins_with_windows_in_a_batch_that_is_given_up_are_rejected() {
    let case = in_windows();
    run(&mut case.embed("undisturbed.parquet"));
    for _ in 0..2 {
        crash(&mut crashing(&case, 101, "10ms"), SIGABRT);
    }
    let said = ends(&mut crashing(&case, 101, "10ms"), 1);
    assert_has(&said, LINE);
    let listed = rejects(&case.path("e.rejects.csv"));
    assert!(
        listed.contains(&(101, "worker_lost".to_owned())),
        "{listed:?}"
    );
    assert!(listed.len() < 102, "{listed:?}");
    let mut validate = validate_shard(
        &case.path("e.parquet"),
        &case.path("shards/shard-00000.parquet"),
    );
    validate.arg("--rejects").arg(case.path("e.rejects.csv"));
    assert_has(&run(&mut validate), "validate-embeddings: pass: ");
}
