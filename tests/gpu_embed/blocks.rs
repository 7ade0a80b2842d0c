//! An output of several blocks, interrupted: what is written stays where it is, and the output is the one of a run that nobody
//! disturbed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::EVERY_OUTPUT;
use crate::common::case::{Case, SIGKILL, SIGTERM, send};
use crate::common::{all, run, test_data};

/// Some 2 kB a residue.
/// Proteins of test-data, so often: five blocks of 64 MiB.
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

    /// Ends a run by a signal once more of the output is on record than `before` bytes, and returns how much is.
    fn interrupt(&self, saved_in: Option<&Path>, signal: i32, before: u64) -> u64 {
        let folder = self.run_folder(saved_in);
        let mut child = self
            .embed(saved_in)
            .stderr(Stdio::null())
            .spawn()
            .expect("spawn");
        let deadline = Instant::now() + Duration::from_mins(2);
        let written = || {
            let recorded = folder.join("part-blocks.record").exists();
            let blocks = folder.join("part-blocks.parquet").metadata();
            blocks.map_or(0, |found| if recorded { found.len() } else { 0 })
        };
        while written() <= before + (64 << 20) {
            assert!(Instant::now() < deadline, "no block is written");
            if let Some(status) = child.try_wait().expect("wait") {
                panic!("the run ended before it could be interrupted: {status}");
            }
            sleep(Duration::from_millis(1));
        }
        let found = written();
        send(&child, signal);
        assert_eq!(child.wait().expect("wait").signal(), Some(signal));
        found
    }

    /// Runs to the end, and returns what was said.
    fn complete(&self, saved_in: Option<&Path>) -> String {
        let said = run(&mut self.embed(saved_in));
        assert!(said.contains(" saved by an earlier run)"), "{said}");
        assert!(fs::read(self.case.path("e.parquet")).expect("output") == self.expected);
        assert!(!self.run_folder(saved_in).exists());
        fs::remove_file(self.case.path("e.parquet")).expect("remove");
        said
    }
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
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    let output = blocks.case.path("e.parquet");
    assert_eq!(output.metadata().expect("output").ino(), inode);
    blocks.case.assert_complete("e.parquet", &blocks.expected);
    fs::remove_file(output).expect("remove");

    // A run that is told to end leaves one file for its blocks.
    blocks.interrupt(None, SIGTERM, 0);
    let names = all(&blocks.run_folder(None));
    assert!(
        names.contains(&"part-blocks.parquet".to_owned()),
        "{names:?}"
    );
    assert!(
        !names.contains(&"part-blocks.record".to_owned()),
        "{names:?}"
    );
    blocks.complete(None);

    // Of a damaged block only that one is computed again.
    let written = blocks.interrupt(None, SIGKILL, 130 << 20);
    let bytes = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&file)
        .expect("blocks");
    let place = written / 20;
    let mut byte = [0];
    bytes.read_exact_at(&mut byte, place).expect("read");
    bytes.write_all_at(&[byte[0] ^ 4], place).expect("write");
    let said = blocks.complete(None);
    assert_eq!(said.matches("damaged; computed again").count(), 1, "{said}");

    // A damaged record is worth nothing, and costs nothing but time.
    blocks.interrupt(None, SIGKILL, 0);
    let record = file.with_extension("record");
    let mut bytes = fs::read(&record).expect("record");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&record, bytes).expect("write");
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

#[test]
fn with_workers_the_blocks_are_the_same() {
    let blocks = Blocks::new();
    let mut embed = blocks.embed(None);
    run(embed.args(["--workers", "2"]));
    blocks.case.assert_complete("e.parquet", &blocks.expected);
}
