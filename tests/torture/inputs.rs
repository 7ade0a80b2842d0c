//! Inputs: real proteins through the real programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Tree, command, run, test_data, tree};

/// The end of a `gpu-embed` command line: on one thread, so that runs are alike.
pub(crate) const EMBED: &str = "--model model-tiny --device cpu --threads 1 --progress none";

/// A folder with inputs, in which commands run: `proteins.fasta`, `model-tiny`, and files that tests add.
pub(crate) struct Inputs(TempDir);

impl Inputs {
    /// Writes `copies` of the test proteins, with distinct ids.
    pub(crate) fn new(copies: usize) -> Self {
        let inputs = Self(tempfile::tempdir().expect("temp folder"));
        let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("proteins");
        let copies = (0..copies).map(|copy| proteins.replace('>', &format!(">{copy}-")));
        inputs.write("proteins.fasta", copies.collect::<String>().as_bytes());
        symlink(test_data("model-tiny"), inputs.path("model-tiny")).expect("link");
        inputs
    }

    /// Adds the shard `set/shard-00000.parquet` of proteins truncated to `residues`, which keeps runs of the model short.
    pub(crate) fn with_shard(copies: usize, residues: u32) -> Self {
        let inputs = Self::new(copies);
        let options = format!("--shards 1 --max-residues {residues} --out set");
        inputs.run(&format!("fasta-shard proteins.fasta {options}"));
        inputs
    }

    /// Adds the shard, and `batches.arrow` of it.
    pub(crate) fn with_batches(copies: usize, residues: u32, max_batch_tokens: u32) -> Self {
        let inputs = Self::with_shard(copies, residues);
        let pack = "pack-batches set/shard-00000.parquet --out batches.arrow";
        inputs.run(&format!("{pack} --max-batch-tokens {max_batch_tokens}"));
        inputs
    }

    /// Adds the dataset `sample` of two shards whose rows interleave, of proteins truncated to 64 residues.
    pub(crate) fn with_dataset(copies: usize) -> Self {
        let inputs = Self::new(copies);
        inputs.run("fasta-shard proteins.fasta --shards 2 --max-residues 64 --out sample/shards");
        fs::create_dir(inputs.path("sample/embeddings")).expect("folder");
        for shard in ["shard-00000", "shard-00001"] {
            inputs.run(&format!(
                "pack-batches sample/shards/{shard}.parquet --out {shard}.arrow"
            ));
            let out = format!("sample/embeddings/{shard}.parquet");
            inputs.run(&format!("gpu-embed {shard}.arrow --out {out} {EMBED}"));
        }
        inputs.run("validate-embeddings --dataset sample");
        inputs
    }

    /// Returns a command line, run in the folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        command(self.0.path(), line)
    }

    /// Returns a command line in which `OUT` is replaced by the folder `out`.
    pub(crate) fn command_to(&self, out: &Path, line: &str) -> Command {
        self.command(&line.replace("OUT", out.to_str().expect("UTF-8")))
    }

    pub(crate) fn run(&self, line: &str) {
        run(&mut self.command(line));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("write");
        path
    }
}

/// A program that is disturbed, and the files that it makes when it is not.
pub(crate) struct Trial {
    pub(crate) inputs: Inputs,
    /// The command line, with the output folder as `OUT`.
    pub(crate) line: String,
    /// The files of an undisturbed run.
    pub(crate) expected: Tree,
}

impl Trial {
    /// Makes the expected files with an undisturbed run of `line`.
    pub(crate) fn new(inputs: Inputs, line: &str) -> Self {
        let folder = tempfile::tempdir().expect("temp folder");
        run(&mut inputs.command_to(folder.path(), line));
        Self {
            inputs,
            line: line.to_owned(),
            expected: tree(folder.path()),
        }
    }
}
