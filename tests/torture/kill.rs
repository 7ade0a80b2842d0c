//! SIGKILL at random moments: a rerun makes exactly the files of an undisturbed run.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plmkit_kit::Stop;
use plmkit_store::{BatchesFile, read_shard};

use crate::common::{paths, run, tree};
use crate::inputs::{EMBED, Inputs, Trial};
use crate::tree::{assert_same, is_hidden, is_saved};

impl Trial {
    /// Runs to success in a folder, and checks the files.
    fn complete(&self, folder: &Path) {
        run(&mut self.inputs.command_to(folder, &self.line));
        assert_same(&tree(folder), &self.expected, &self.line);
    }

    /// Kills `once` runs at random moments, and in `twice` cases also a rerun. A last rerun must then succeed with the expected
    /// files.
    ///
    /// The seed is printed; `TORTURE_SEED` sets it.
    fn kill(&self, once: usize, twice: usize) {
        let seed = seed();
        let mut random = Random(seed);
        let lasts = self.duration();
        let mut moments: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut runs, mut hit_once, mut hit_twice) = (0, 0, 0);
        while hit_once < once || hit_twice < twice {
            runs += 1;
            assert!(runs <= 10 * once, "ends before it can be killed");
            let folder = tempfile::tempdir().expect("temp folder");
            let Some(moment) = self.killed_after(random.up_to(lasts), folder.path()) else {
                continue;
            };
            *moments.entry(moment).or_default() += 1;
            hit_once += 1;
            if hit_twice < twice {
                let again = self.killed_after(random.up_to(lasts), folder.path());
                hit_twice += usize::from(again.is_some());
            }
            self.complete(folder.path());
        }
        eprintln!(
            "{}: seed {seed}: {hit_once} of {runs} runs killed ({hit_twice} of them twice), which take {lasts:?}; \
             files at that moment: {moments:?}",
            self.line,
        );
    }

    /// Measures an undisturbed run.
    fn duration(&self) -> Duration {
        let folder = tempfile::tempdir().expect("temp folder");
        let start = Instant::now();
        self.complete(folder.path());
        start.elapsed()
    }

    /// Starts a run and kills it. Returns the kind of its files, or `None` if it had ended.
    fn killed_after(&self, delay: Duration, folder: &Path) -> Option<&'static str> {
        let mut command = self.inputs.command_to(folder, &self.line);
        let mut child = command.stderr(Stdio::null()).spawn().expect("start");
        sleep(delay);
        child.kill().expect("kill");
        let status = child.wait().expect("wait");
        if status.signal().is_none() {
            assert!(status.success(), "{}: {status}", self.line);
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

/// Pseudo-random numbers by splitmix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
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
    let options = "--shards 4 --threads 2 --long-policy reject";
    let line = format!("fasta-shard proteins.fasta --out OUT {options}");
    let victim = Trial::new(Inputs::new(200), &line);
    for (name, bytes) in &victim.expected {
        if name.extension().is_some_and(|found| found == "parquet") {
            let path = victim.inputs.write("verified.parquet", bytes);
            read_shard(&path).expect("verified");
        }
    }
    victim.kill(100, 30);
}

#[test]
#[ignore = "minutes: make torture"]
fn pack_batches() {
    let line =
        "pack-batches set/shard-00000.parquet --out OUT/batches.arrow --report OUT/pack.json";
    let victim = Trial::new(Inputs::with_shard(1000, 64), line);
    let batches = &victim.expected[Path::new("batches.arrow")];
    let path = victim.inputs.write("verified.arrow", batches);
    BatchesFile::open(&path, &Stop::default()).expect("verified");
    victim.kill(100, 30);
}

#[test]
#[ignore = "minutes: make torture"]
fn combine() {
    let line = "query-embeddings combine sample --out OUT/all --rows-per-file 500";
    Trial::new(Inputs::with_dataset(30), line).kill(60, 20);
}

#[test]
#[ignore = "minutes: make torture"]
fn matrix() {
    let line = "query-embeddings combine sample --format npy --out OUT/vectors.npy";
    Trial::new(Inputs::with_dataset(30), line).kill(40, 10);
}

#[test]
#[ignore = "minutes: make torture"]
fn gpu_embed() {
    let line = format!("gpu-embed batches.arrow --out OUT/embeddings.parquet {EMBED}");
    let mut victim = Trial::new(Inputs::with_batches(4, 64, 256), &line);
    victim.line += " --checkpoint-interval 10ms";
    victim.kill(100, 30);
}
