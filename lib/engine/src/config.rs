//! What a run is asked to do.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use plmkit_contract::{Pool, StoreDtype, VectorColumn};
use plmkit_esm2::Device;

/// The whole of a run's options.
#[derive(Clone, Debug)]
pub struct Config {
    /// The batches files, in order.
    pub batches: Vec<PathBuf>,
    /// The checkpoint folder.
    pub model: PathBuf,
    /// The embeddings file to write.
    pub out: PathBuf,
    /// Where to compute.
    pub device: Device,
    /// How to combine residues; each gives a column for each layer.
    pub pools: Vec<Pool>,
    /// The layers whose output is wanted.
    pub layers: Layers,
    /// The type in which vectors are stored.
    pub store_dtype: StoreDtype,
    /// Where run events go, if anywhere.
    pub events: Option<PathBuf>,
    /// CPU threads of the computation.
    pub threads: NonZeroUsize,
    /// Packs that are read ahead.
    pub prefetch: NonZeroUsize,
    /// Whether an output of other work may be replaced.
    pub force: bool,
}

/// Which layers are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The last one, after the final `LayerNorm`.
    Last,
    /// These, in this order.
    Listed(Vec<u32>),
}

impl Config {
    /// The vector columns that are asked of a model of `layers` layers, in file order, each once.
    pub(crate) fn columns(&self, layers: usize) -> Vec<VectorColumn> {
        let last = [layers as u32];
        let wanted = match &self.layers {
            Layers::Last => &last[..],
            Layers::Listed(listed) => listed,
        };
        let mut columns = Vec::new();
        for &layer in wanted {
            for &pool in &self.pools {
                let column = VectorColumn { pool, layer };
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
        }
        columns
    }
}
