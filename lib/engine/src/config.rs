//! The options of an engine, and of one of its outputs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plmkit_contract::{ModelName, Outputs, StoreDtype};
use plmkit_esm2::{ComputeOptions, EsmError};

/// What all outputs of an [`Engine`](crate::Engine) share.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// The checkpoint: its folder, or its weight file.
    pub model: PathBuf,
    /// The name of the model in results.
    pub model_name: ModelName,
    /// The device of the computation, its type and kernels.
    pub compute: ComputeOptions,
    pub outputs: Outputs,
    /// The file with the positions to mask, by default all.
    pub scores_positions: Option<PathBuf>,
    /// How to combine the windows of a protein.
    pub windows: Windows,
    /// The stored type of vectors.
    pub store_dtype: StoreDtype,
    /// CPU threads of the computation.
    pub threads: NonZeroUsize,
    /// Batches to read ahead.
    pub prefetch: usize,
    /// The checkpoint interval: the most work that a killed run loses.
    pub checkpoint_interval: Duration,
    /// The file of digests of checkpoints that earlier runs read, if any.
    pub digests: Option<PathBuf>,
    /// Failures to inject in tests.
    pub injection: Injection,
}

/// One output.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The batches files, in order.
    pub batches: Vec<PathBuf>,
    /// The embeddings file to write.
    pub out: PathBuf,
    /// The list of sequences that cannot be embedded; by default `NAME.rejects.csv` beside the output.
    pub rejects: Option<PathBuf>,
    /// The folder of checkpoints; by default that of the output.
    pub checkpoint_dir: Option<PathBuf>,
    /// The file of run events, if any.
    pub events: Option<PathBuf>,
    /// Whether to overwrite an output of other work.
    pub force: bool,
    /// Whether to wait while another process writes the output, instead of failing.
    pub wait: bool,
}

impl Job {
    /// The path of the rejects list.
    pub fn rejects(&self) -> PathBuf {
        let given = self.rejects.clone();
        given.unwrap_or_else(|| rejects_beside(&self.out))
    }
}

/// How to combine the windows of a long protein.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumMessage, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Windows {
    /// One row for the protein, stitched from its windows
    Stitch,
    /// A row for each window
    Separate,
}

/// Failures to inject, so that their handling can be tested on any machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Computations of more tokens than this run out of memory.
    pub out_of_memory_above: Option<usize>,
    /// Ordinals of records whose vectors are not finite.
    pub not_finite: Vec<u64>,
    /// Ordinals of records whose computation aborts the process.
    pub abort: Vec<u64>,
    /// Ordinals of records whose computation panics.
    pub panic: Vec<u64>,
}

impl Injection {
    /// Aborts or panics if that is injected for one of these records.
    pub(crate) fn maybe_fail(&self, mut ordinals: impl Iterator<Item = u64> + Clone) {
        assert!(
            self.panic.is_empty()
                || !ordinals
                    .clone()
                    .any(|ordinal| self.panic.contains(&ordinal)),
            "injected"
        );
        if !self.abort.is_empty() && ordinals.any(|ordinal| self.abort.contains(&ordinal)) {
            std::process::abort();
        }
    }

    /// Fails if an out-of-memory error is injected for this many tokens.
    pub(crate) fn check_memory(&self, tokens: usize) -> Result<(), EsmError> {
        match self.out_of_memory_above {
            Some(most) if tokens > most => Err(EsmError::OutOfMemory("injected".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Returns the default path of the rejects list of `out`: `NAME.rejects.csv` for `NAME.parquet`, and for any other `NAME`.
pub fn rejects_beside(out: &Path) -> PathBuf {
    let mut name = match out.extension() {
        Some(extension) if extension == "parquet" => out.with_extension(""),
        _ => out.to_owned(),
    };
    name.as_mut_os_string().push(".rejects.csv");
    name
}
