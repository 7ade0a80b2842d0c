//! The files that the tests damage: real proteins through the real programs.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::common::{bin, run, test_data};

/// Proteins are cut to so many residues, so that hundreds of runs of `gpu-embed` take little time.
pub(crate) const RESIDUES: &str = "100";

/// A folder with one file of each kind.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    /// Makes a shard with its manifest, and batches of it.
    pub(crate) fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("temp folder"),
        };
        run(bin("fasta-shard")
            .arg(test_data("proteins.fasta"))
            .args(["--shards", "1", "--max-residues", RESIDUES, "--out"])
            .arg(files.path("set")));
        run(bin("pack-batches")
            .arg(files.shard())
            .args(["--max-batch-tokens", "2000", "--out"])
            .arg(files.batches()));
        files
    }

    /// Makes embeddings, with values stored as `dtype`.
    pub(crate) fn embeddings(&self, dtype: &str) -> PathBuf {
        let out = self.path(&format!("{dtype}.parquet"));
        run(bin("gpu-embed")
            .arg(self.batches())
            .arg("--model")
            .arg(test_data("model-tiny"))
            .args(["--device", "cpu", "--store-dtype", dtype, "--out"])
            .arg(&out));
        out
    }

    pub(crate) fn shard(&self) -> PathBuf {
        self.path("set/shard-00000.parquet")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.path("set/manifest.json")
    }

    pub(crate) fn batches(&self) -> PathBuf {
        self.path("batches.arrow")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new file with these bytes.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("write");
        path
    }
}
