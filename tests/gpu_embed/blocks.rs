//! An output of several blocks, interrupted: written blocks stay in place, and the output equals that of an uninterrupted run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::case::{Case, SIGCONT, SIGKILL, SIGSTOP, SIGTERM, send};
use crate::common::{assert_failed, failing_calls, run, test_data};
use crate::{EVERY_OUTPUT, assert_has, flip, wait_until};

/// Copies of the test proteins, with some 2 kB a residue: five blocks of 64 MiB.
const COPIES: usize = 20;

struct Blocks {
    case: Case,
    expected: Vec<u8>,
}

impl Blocks {
    fn new() -> Self {
        let case = Case::new();
        let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
        let copies = (0..COPIES).map(|copy| proteins.replace('>', &format!(">{copy}-")));
        case.pack_with(&copies.collect::<String>(), &[], 2048);
        run(case
            .embed_saving("undisturbed.parquet", "1h")
            .args(EVERY_OUTPUT));
        let expected = fs::read(case.path("undisturbed.parquet")).expect("output");
        assert!(expected.len() > 250 << 20, "{} bytes", expected.len());
        Self { case, expected }
    }

    fn embed(&self, saved_in: Option<&Path>) -> Command {
        let mut command = self.case.embed_saving("e.parquet", "20ms");
        command.args(EVERY_OUTPUT);
        if let Some(folder) = saved_in {
            command.arg("--checkpoint-dir").arg(folder);
        }
        command
    }

    fn run_folder(&self, saved_in: Option<&Path>) -> PathBuf {
        let folder = saved_in.map_or_else(|| self.case.path(""), Path::to_owned);
        folder.join(".e.parquet.plmkit-run")
    }

    /// Ends a run by a signal when more than 64 MiB over `before` are on record, and returns how much is.
    fn interrupt(&self, saved_in: Option<&Path>, signal: i32, before: u64) -> u64 {
        let folder = self.run_folder(saved_in);
        let mut embed = self.embed(saved_in);
        let mut child = embed.stderr(Stdio::null()).spawn().expect("spawn");
        let written = || recorded(&folder);
        wait_until(&mut child, || written() > before + (64 << 20));
        let found = written();
        send(&child, signal);
        assert_eq!(child.wait().expect("wait").signal(), Some(signal));
        found
    }

    /// Runs to the end, checks and removes the output, and returns the messages.
    fn complete(&self, saved_in: Option<&Path>) -> String {
        let said = run(&mut self.embed(saved_in));
        assert_has(&said, " saved by an earlier run)");
        assert!(fs::read(self.case.path("e.parquet")).expect("output") == self.expected);
        assert!(!self.run_folder(saved_in).exists());
        fs::remove_file(self.case.path("e.parquet")).expect("remove");
        said
    }
}

/// The bytes of an output under construction, once it has a record.
fn recorded(folder: &Path) -> u64 {
    let recorded = folder.join("part-blocks.footer").exists();
    let blocks = folder.join("part-blocks.parquet").metadata();
    blocks.map_or(0, |found| if recorded { found.len() } else { 0 })
}

#[test]
fn blocks_survive_kills_signals_and_damage() {
    let blocks = Blocks::new();
    let file = blocks.run_folder(None).join("part-blocks.parquet");

    // The file that grows becomes the output.
    let found = blocks.interrupt(None, SIGKILL, 0);
    let inode = file.metadata().expect("blocks").ino();
    blocks.interrupt(None, SIGKILL, found);
    let said = run(&mut blocks.embed(None));
    assert_has(&said, " saved by an earlier run)");
    let output = blocks.case.path("e.parquet");
    assert_eq!(output.metadata().expect("output").ino(), inode);
    blocks.case.assert_complete("e.parquet", &blocks.expected);
    fs::remove_file(output).expect("remove");

    // A stopped run is continued, too.
    blocks.interrupt(None, SIGTERM, 0);
    blocks.complete(None);

    // Only a damaged block is computed again.
    blocks.interrupt(None, SIGKILL, 130 << 20);
    flip(&file, 0.05);
    let said = blocks.complete(None);
    assert_eq!(said.matches("damaged; computed again").count(), 1, "{said}");

    // After damage to the record, everything is computed again.
    blocks.interrupt(None, SIGKILL, 0);
    flip(&file.with_extension("footer"), 0.5);
    run(&mut blocks.embed(None));
    blocks.case.assert_complete("e.parquet", &blocks.expected);
}

#[test]
fn blocks_on_another_file_system_are_copied() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no second file system");
        return;
    };
    let blocks = Blocks::new();
    let device = |path: &Path| path.metadata().expect("metadata").dev();
    if device(elsewhere.path()) == device(&blocks.case.path("")) {
        eprintln!("skipped: /dev/shm is on the same file system");
        return;
    }
    blocks.interrupt(Some(elsewhere.path()), SIGKILL, 0);
    blocks.complete(Some(elsewhere.path()));
}

/// The locks of the file system exclude only processes of one machine.
#[test]
fn a_run_on_another_machine_takes_the_output_over() {
    let blocks = Blocks::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let library = failing_calls(folder.path());
    let on = |machine: &str| {
        let mut embed = blocks.embed(None);
        embed.env("LD_PRELOAD", &library).env("LOCKS", machine);
        embed
    };
    let mut first = on("1").stderr(Stdio::piped()).spawn().expect("spawn");
    let run_folder = blocks.run_folder(None);
    wait_until(&mut first, || recorded(&run_folder) > 64 << 20);
    send(&first, SIGSTOP);
    assert_failed(&on("1").output().expect("run"), 75, "another process");
    // What the first run has saved is used. It may still write the file.
    assert_has(&run(&mut on("2")), " saved by an earlier run)");
    blocks.case.assert_complete("e.parquet", &blocks.expected);
    send(&first, SIGCONT);
    let output = first.wait_with_output().expect("wait");
    assert_failed(&output, 75, "e.parquet: another process is writing it");
    blocks.case.assert_complete("e.parquet", &blocks.expected);
}
