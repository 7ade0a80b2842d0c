//! SIGKILL at any moment: a rerun ends with the files of a run that nobody disturbed, and with nothing else.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plmkit_contract::Stop;
use plmkit_store::{BatchesFile, read_shard};

use crate::common::{bin, run};
use crate::inputs::{embed, pack, write_fasta, write_shard};
use crate::tree::{assert_same, is_hidden, is_saved, paths, tree};

/// A program that is killed.
pub(crate) struct Victim<'a> {
    pub(crate) name: &'a str,
    /// The command that makes its files in a folder, which is there and at first empty.
    pub(crate) command: &'a dyn Fn(&Path) -> Command,
    /// What must hold of the folder after a run that ended well.
    pub(crate) check: &'a dyn Fn(&Path),
}

impl Victim<'_> {
    /// Kills runs at random moments until `once` of them were hit alive and in `twice` of these a rerun was hit too.
    /// After each, a rerun must succeed and `check` must hold.
    ///
    /// The seed is printed; `TORTURE_SEED` sets it.
    pub(crate) fn kill(&self, once: usize, twice: usize) {
        let seed = seed();
        let mut random = Random(seed);
        let lasts = self.undisturbed();
        let mut moments: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut runs, mut hit_once, mut hit_twice) = (0, 0, 0);
        while hit_once < once || hit_twice < twice {
            runs += 1;
            assert!(
                runs <= 10 * once,
                "{}: ends before it can be killed",
                self.name
            );
            let folder = tempfile::tempdir().expect("temp folder");
            let Some(moment) = self.killed_after(random.up_to(lasts), folder.path()) else {
                continue;
            };
            *moments.entry(moment).or_default() += 1;
            hit_once += 1;
            if hit_twice < twice
                && self
                    .killed_after(random.up_to(lasts), folder.path())
                    .is_some()
            {
                hit_twice += 1;
            }
            run(&mut (self.command)(folder.path()));
            (self.check)(folder.path());
        }
        eprintln!(
            "{}: seed {seed}: {hit_once} runs killed ({hit_twice} of them twice) of {runs}, which last {lasts:?}; \
             files there at that moment: {moments:?}",
            self.name,
        );
    }

    /// How long a run lasts that nobody disturbs; its files must be right, too.
    fn undisturbed(&self) -> Duration {
        let folder = tempfile::tempdir().expect("temp folder");
        let start = Instant::now();
        run(&mut (self.command)(folder.path()));
        let lasts = start.elapsed();
        (self.check)(folder.path());
        lasts
    }

    /// Starts a run and kills it; tells what files it had made, or `None` where it had ended already.
    fn killed_after(&self, delay: Duration, folder: &Path) -> Option<&'static str> {
        let mut child = (self.command)(folder)
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        sleep(delay);
        child.kill().expect("kill");
        let status = child.wait().expect("wait");
        if status.signal().is_none() {
            assert!(status.success(), "{}: {status}", self.name);
            return None;
        }
        let paths = paths(folder);
        Some(if paths.is_empty() {
            "none"
        } else if paths.iter().any(|path| is_saved(path)) {
            "saved parts"
        } else if paths.iter().all(|path| is_hidden(path)) {
            "temporary"
        } else {
            "final"
        })
    }
}

fn seed() -> u64 {
    match std::env::var("TORTURE_SEED") {
        Ok(seed) => seed.parse().expect("TORTURE_SEED is a number"),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs(),
    }
}

/// Numbers that look random, by splitmix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.next() as f64 / u64::MAX as f64)
    }
}

#[test]
#[ignore = "minutes: make torture"]
fn fasta_shard() {
    let input = tempfile::tempdir().expect("temp folder");
    let fasta = input.path().join("proteins.fasta");
    write_fasta(&fasta, 200);
    let command = |folder: &Path| {
        let mut command = bin("fasta-shard");
        command.arg(&fasta).arg("--out").arg(folder);
        command.args(["--shards", "4", "--threads", "2", "--long-policy", "reject"]);
        command
    };
    let undisturbed = tempfile::tempdir().expect("temp folder");
    run(&mut command(undisturbed.path()));
    for shard in 0..4 {
        read_shard(
            &undisturbed
                .path()
                .join(format!("shard-0000{shard}.parquet")),
        )
        .expect("verified");
    }
    let expected = tree(undisturbed.path());
    Victim {
        name: "fasta-shard",
        command: &command,
        check: &|folder| assert_same(&tree(folder), &expected, "fasta-shard after a kill"),
    }
    .kill(100, 30);
}

#[test]
#[ignore = "minutes: make torture"]
fn pack_batches() {
    let input = tempfile::tempdir().expect("temp folder");
    let shard = write_shard(input.path(), 1000);
    let command = |folder: &Path| pack(&shard, folder);
    let undisturbed = tempfile::tempdir().expect("temp folder");
    run(&mut command(undisturbed.path()));
    BatchesFile::open(&undisturbed.path().join("batches.arrow"), &Stop::default())
        .expect("verified");
    let expected = tree(undisturbed.path());
    Victim {
        name: "pack-batches",
        command: &command,
        check: &|folder| assert_same(&tree(folder), &expected, "pack-batches after a kill"),
    }
    .kill(100, 30);
}

#[test]
#[ignore = "minutes: make torture"]
fn gpu_embed() {
    kill_gpu_embed("gpu-embed", &[], (100, 30));
}

#[test]
#[ignore = "minutes: make torture"]
fn gpu_embed_with_workers() {
    kill_gpu_embed("gpu-embed --workers 3", &["--workers", "3"], (40, 10));
}

/// Its output after kills is the one of a run in one process.
fn kill_gpu_embed(name: &str, options: &[&str], (once, twice): (usize, usize)) {
    let input = tempfile::tempdir().expect("temp folder");
    let batches = input.path().join("batches.arrow");
    run(bin("pack-batches")
        .arg(write_shard(input.path(), 4))
        .arg("--out")
        .arg(&batches)
        .args(["--max-batch-tokens", "256"]));
    let command = |folder: &Path| {
        let mut command = embed(&batches, folder);
        command
            .args(["--checkpoint-interval", "10ms"])
            .args(options);
        command
    };
    let undisturbed = tempfile::tempdir().expect("temp folder");
    run(&mut embed(&batches, undisturbed.path()));
    let expected = tree(undisturbed.path());
    Victim {
        name,
        command: &command,
        check: &|folder| assert_same(&tree(folder), &expected, "gpu-embed after a kill"),
    }
    .kill(once, twice);
}
