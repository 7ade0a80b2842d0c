//! The options of a run.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plmkit_contract::{Column, ModelName, Pooling, StoreDtype, VectorColumn};
use plmkit_esm2::{ComputeOptions, Device, Dtype, EsmError, Kernels};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The batches files, in order.
    pub batches: Vec<PathBuf>,
    /// The checkpoint: its folder, or its weight file.
    pub model: PathBuf,
    /// What people call it.
    pub model_name: ModelName,
    /// The embeddings file to write; of a probe the batch size, or empty for none.
    pub out: PathBuf,
    /// Where to compute.
    pub device: Device,
    /// What to compute.
    pub outputs: Outputs,
    /// What becomes of the windows of a protein.
    pub windows: Windows,
    /// The type in which to compute; by default the most exact that is fast on the device.
    pub dtype: Option<Dtype>,
    /// What computes the layers on a CPU.
    pub kernels: Kernels,
    /// The type in which vectors are stored.
    pub store_dtype: StoreDtype,
    /// Where the sequences that cannot be embedded are listed; by default beside the output, as `NAME.rejects.csv`.
    pub rejects: Option<PathBuf>,
    /// How long finished batches may be unsaved: the most work that a killed run loses.
    pub checkpoint_interval: Duration,
    /// The folder in which finished batches are saved until the output is complete; by default that of the output.
    pub checkpoint_dir: Option<PathBuf>,
    /// Whether to wait for another process that is writing the output, which is an error otherwise.
    pub wait: bool,
    /// Where run events go, if anywhere.
    pub events: Option<PathBuf>,
    /// CPU threads of the computation, of all workers together.
    pub threads: NonZeroUsize,
    /// The worker processes that compute; `None` for this process itself, and with [`Device::All`] for one a GPU.
    pub workers: Option<NonZeroUsize>,
    /// The command line, without the program's name, with which this program ends up in [`serve`](crate::serve) with
    /// the same configuration.
    pub worker_arguments: Vec<OsString>,
    /// Batches that are read ahead.
    pub prefetch: usize,
    /// Whether an output of other work may be replaced.
    pub force: bool,
    /// Whether run events say what a GPU's time goes into, which costs it a little of that.
    pub profile: bool,
    /// Failures to produce, for tests.
    pub injection: Injection,
}

/// What is wanted of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// How to combine residues; each gives a column for each layer.
    pub pools: Vec<Pooling>,
    /// The layers whose output is wanted.
    pub layers: Layers,
    /// Whether the vector of each residue is wanted, for each of the layers.
    pub residues: bool,
    /// Whether the logits of each residue are wanted.
    pub logits: bool,
    /// Whether the contacts of residues are wanted.
    pub contacts: bool,
}

/// What becomes of the windows that a long protein was cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Windows {
    /// One row for the protein, put together from them.
    Stitch,
    /// A row for each.
    Separate,
}

/// Failures that are produced on purpose, so that what is done about them can be tested on any machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// A computation of more tokens than this fails for want of memory.
    pub out_of_memory_above: Option<usize>,
    /// The vectors of the records with these ordinals are not finite.
    pub not_finite: Vec<u64>,
    /// The process that computes one of the records with these ordinals is aborted.
    pub abort: Vec<u64>,
    /// The computation of one of the records with these ordinals panics.
    pub panic: Vec<u64>,
}

impl Injection {
    /// Aborts or panics if one of these records is to do so.
    pub(crate) fn maybe_fail(&self, mut ordinals: impl Iterator<Item = u64>) {
        if self.abort.is_empty() && self.panic.is_empty() {
            return;
        }
        if let Some(ordinal) =
            ordinals.find(|ordinal| self.abort.contains(ordinal) || self.panic.contains(ordinal))
        {
            assert!(!self.panic.contains(&ordinal), "injected");
            std::process::abort();
        }
    }

    /// Fails if so many tokens at once are not to fit into memory.
    pub(crate) fn check_memory(&self, tokens: usize) -> Result<(), EsmError> {
        match self.out_of_memory_above {
            Some(most) if tokens > most => Err(EsmError::OutOfMemory("injected".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Where the rejects of the output `out` go: `NAME.rejects.csv` for `NAME.parquet`, and for any other `NAME`.
pub fn rejects_beside(out: &Path) -> PathBuf {
    let mut name = match out.extension() {
        Some(extension) if extension == "parquet" => out.with_extension(""),
        _ => out.to_owned(),
    };
    name.as_mut_os_string().push(".rejects.csv");
    name
}

/// Which layers are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The last one, after the final `LayerNorm`.
    Last,
    /// Every one, from 0, the token embedding.
    All,
    /// These, in this order.
    Listed(Vec<u32>),
}

impl RunConfig {
    /// Where and how the model computes.
    pub(crate) fn setup(&self) -> ComputeOptions {
        ComputeOptions {
            device: self.device,
            dtype: self.dtype,
            kernels: self.kernels,
            profile: self.profile,
        }
    }

    /// Where the sequences that cannot be embedded are listed.
    pub fn rejects(&self) -> PathBuf {
        self.rejects
            .clone()
            .unwrap_or_else(|| rejects_beside(&self.out))
    }
}

impl Outputs {
    /// The columns that are asked of a model of `layers` layers, in file order, each once.
    pub(crate) fn columns(&self, layers: usize) -> Result<Vec<Column>, EsmError> {
        let wanted: Vec<u32> = match &self.layers {
            Layers::Last => vec![layers as u32],
            Layers::All => (0..=layers as u32).collect(),
            Layers::Listed(listed) => listed.clone(),
        };
        let mut columns: Vec<Column> = Vec::new();
        let mut add = |column| {
            if !columns.contains(&column) {
                columns.push(column);
            }
        };
        for &layer in &wanted {
            if layer as usize > layers {
                return Err(EsmError::NoSuchLayer {
                    layer: layer as usize,
                    layers,
                });
            }
            for &pool in &self.pools {
                add(Column::Pooled(VectorColumn { pool, layer }));
            }
        }
        if self.residues {
            wanted.into_iter().map(Column::Residues).for_each(&mut add);
        }
        if self.logits {
            add(Column::Logits);
        }
        if self.contacts {
            add(Column::Contacts);
        }
        Ok(columns)
    }
}
