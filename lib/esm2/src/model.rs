//! The model: computes hidden states, vectors, logits and contacts of a batch.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plmkit_contract::{Column, Exit, NoSuchLayer, Stop};
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::compute_options::{Place, Plan};
use crate::cpu::CpuModel;
use crate::cuda::{CudaModel, MemoryAsked};
use crate::heads::HeadDigests;
use crate::pending::{DeviceOutput, ModelOutput, PendingOutput};
use crate::{Buffer, ComputeOptions, Dtype, EsmError, Head, ModelConfig, Varlen};

/// An ESM-2 on a device.
///
/// ```
/// # use std::path::Path;
/// use plmkit_contract::{Column, Stop};
/// use plmkit_esm2::{Esm2, ComputeOptions, Varlen};
///
/// # let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-data/model-tiny"));
/// let model = Esm2::load(folder, ComputeOptions::default(), &Stop::default())?;
/// let tokens = [0, 20, 5, 2, 0, 6, 2]; // <cls> M A <eos> <cls> G <eos>
/// let batch = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
/// let columns = ["mean_4", "contacts"].map(|name| name.parse::<Column>().unwrap());
/// let values = model.embed(batch, &columns, model.dtype(), &Stop::default())?;
/// assert_eq!(values[0].len(), 2 * model.config().hidden);
/// assert_eq!(values[1].len(), 2 * 2 + 1);
/// # Ok::<(), plmkit_esm2::EsmError>(())
/// ```
#[derive(Debug)]
pub struct Esm2 {
    /// The folder or weight file, for messages.
    source: PathBuf,
    config: ModelConfig,
    digest: String,
    heads: HeadDigests,
    dtype: Dtype,
    compute: Compute,
    load_times: LoadTimes,
}

/// What computes a model.
#[derive(Debug)]
pub(crate) enum Compute {
    Cpu(Box<CpuModel>),
    Cuda(Box<CudaModel>),
}

/// Times of loading a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTimes {
    /// The total: opening the device, reading, hashing, packing or copying weights, and the times below.
    pub all: Duration,
    /// Compiling kernels for a GPU, if any.
    pub compiled: Option<Duration>,
    /// Page-locking host memory for batches, if any.
    pub pinned: Option<Duration>,
}

/// Receives each layer's number and output, `(total_tokens, hidden)`.
pub type Visit<'a> = dyn FnMut(usize, &[f32]) -> Result<(), EsmError> + 'a;

impl Esm2 {
    /// Loads the Hugging Face checkpoint in the folder `model`, or in the weight file `model` with `config.json` beside it.
    /// Weights are safetensors or PyTorch files, one or several. `stop` is polled between tensors,
    /// and on a GPU while batches are computed.
    pub fn load(model: &Path, options: ComputeOptions, stop: &Stop) -> Result<Self, EsmError> {
        let started = Instant::now();
        let Plan { place, dtype } = options.plan()?;
        let (checkpoint, compute, compiled) = match place {
            Place::Cpu(isa, multiply) => {
                let (checkpoint, cpu) = checkpoint::load_cpu(model, (isa, multiply), stop)?;
                (checkpoint, Compute::Cpu(Box::new(cpu)), None)
            }
            Place::Torch(how) => {
                let (cuda, opened) = CudaModel::open(model, &how, (dtype, options.profile), stop)?;
                let compute = Compute::Cuda(Box::new(cuda));
                (opened.checkpoint, compute, opened.compiled)
            }
        };
        Ok(Self {
            source: model.to_owned(),
            config: checkpoint.config,
            digest: checkpoint.digest,
            heads: checkpoint.heads,
            dtype,
            compute,
            load_times: LoadTimes {
                all: started.elapsed(),
                compiled,
                pinned: None,
            },
        })
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`, if the device uses such memory. Allocating it
    /// is slow, and a larger batch cannot use the memory of a smaller one.
    pub fn reserve(&mut self, largest: (usize, usize), columns: &[Column]) -> Result<(), EsmError> {
        let started = Instant::now();
        let columns = columns.to_vec();
        if let Compute::Cuda(model) = &self.compute
            && model
                .memory(&MemoryAsked::Reserve { largest, columns })?
                .is_some()
        {
            self.load_times.pinned = Some(started.elapsed());
            self.load_times.all += started.elapsed();
        }
        Ok(())
    }

    /// Loads the same checkpoint in f32, for comparison; `None` unless plmkit's CPU kernels compute it. Packs each layer when it
    /// computes it, so that only one layer is in memory.
    pub fn in_f32(&self) -> Result<Option<Self>, EsmError> {
        let Compute::Cpu(model) = &self.compute else {
            return Ok(None);
        };
        let model = checkpoint::stream(&self.source, model.isa())?;
        Ok(Some(Self {
            source: self.source.clone(),
            config: self.config.clone(),
            digest: self.digest.clone(),
            heads: self.heads.clone(),
            dtype: Dtype::F32,
            compute: Compute::Cpu(Box::new(model)),
            load_times: LoadTimes::default(),
        }))
    }

    /// Returns the times of loading.
    pub fn load_times(&self) -> LoadTimes {
        self.load_times
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns BLAKE3, 128 bits in hexadecimal, of everything in the checkpoint that a vector depends on.
    ///
    /// That is the configuration and the stored encoder weights with their canonical names. The digest does not depend on the
    /// number of files and on heads. A model cast to another type has another digest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the model in the library, if that computes it.
    fn in_library(&self) -> Option<&CudaModel> {
        match &self.compute {
            Compute::Cuda(model) => Some(model),
            Compute::Cpu(_) => None,
        }
    }

    /// Returns the device of the model: `cpu` or `cuda:0`.
    pub fn device(&self) -> String {
        let gpu = self.in_library().and_then(CudaModel::gpu);
        gpu.map_or_else(
            || "cpu".to_owned(),
            |(gpu, _)| format!("cuda:{}", gpu.index),
        )
    }

    /// Returns the GPU's name and total memory in bytes; `None` on a CPU.
    pub fn gpu(&self) -> Option<(&str, usize)> {
        let (gpu, memory) = self.in_library()?.gpu()?;
        Some((gpu.name.as_str(), memory))
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub fn used_memory_mib(&self) -> Option<(u64, u64)> {
        self.in_library()?.memory(&MemoryAsked::Used).ok()?
    }

    /// Returns what computes the layers: an instruction set of plmkit's CPU kernels, `cuda` or `libtorch`.
    pub fn kernels(&self) -> String {
        match &self.compute {
            Compute::Cpu(model) => model.kernels(),
            Compute::Cuda(model) => model.kernels().to_owned(),
        }
    }

    /// Returns the type of the weights in memory, in which the model is fastest.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the heads that `columns` need, each once.
    pub fn heads_for(&self, columns: &[Column]) -> Vec<Head> {
        let mut heads: Vec<Head> = columns
            .iter()
            .filter_map(|&column| Head::for_column(column))
            .collect();
        heads.dedup();
        heads
    }

    /// Returns BLAKE3, 128 bits in hexadecimal, of the stored weights of a head, or [`EsmError::NoHead`].
    pub fn head_digest(&self, head: Head) -> Result<&str, EsmError> {
        let digest = self.heads.of(head);
        digest.map_err(|reason| EsmError::NoHead {
            model: self.source.clone(),
            head,
            reason: reason.clone(),
        })
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub fn release(&self) -> Result<(), EsmError> {
        let release = |model: &CudaModel| model.memory(&MemoryAsked::Release).map(drop);
        self.in_library().map_or(Ok(()), release)
    }

    /// Computes `columns`: for each column the f32 values of all sequences in turn, as many as [`Column::values`]. Layers that no
    /// column needs are not computed. If `dtype` is not the model's, weights are converted layer by layer, which is slow;
    /// int8 weights are not converted. `stop` is polled between layers and gives [`EsmError::Stopped`].
    pub fn embed(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        dtype: Dtype,
        stop: &Stop,
    ) -> Result<Vec<Buffer<f32>>, EsmError> {
        Ok(self.begin(batch, columns, dtype, stop)?.finish()?.columns)
    }

    /// Begins the computation of [`embed`](Self::embed). A GPU computes while the program continues: the next batch can begin
    /// before this one is finished.
    pub fn begin(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        dtype: Dtype,
        stop: &Stop,
    ) -> Result<PendingOutput, EsmError> {
        for head in self.heads_for(columns) {
            self.head_digest(head)?;
        }
        let depths = columns
            .iter()
            .map(|column| column.depth(self.config.layers));
        let Some(depth) = depths.max() else {
            return Ok(PendingOutput::Computed(ModelOutput::default()));
        };
        self.check_layer(depth)?;
        let how = (depth, dtype);
        match &self.compute {
            Compute::Cpu(model) => {
                let columns = model.embed(batch, columns, how, stop)?;
                let times = None;
                Ok(PendingOutput::Computed(ModelOutput { columns, times }))
            }
            Compute::Cuda(model) => {
                let pending =
                    PendingOutput::OnDevice(DeviceOutput(model.submit(batch, columns, how)?));
                match model.gpu() {
                    Some(_) => Ok(pending),
                    // libtorch's operations on a CPU have computed it.
                    None => Ok(PendingOutput::Computed(pending.finish()?)),
                }
            }
        }
    }

    /// Computes layers 1 to `depth` and calls `visit` with the output of each, and with layer 0.
    ///
    /// As in fair-esm's `representations`, layer 0 is the scaled embedding, layer `i` is the residual stream after
    /// transformer layer `i`, and the last layer of the model is the output of the final `LayerNorm`. Only plmkit's CPU kernels
    /// show their layers.
    pub fn hidden_states(
        &self,
        batch: Varlen<'_>,
        depth: usize,
        visit: &mut Visit,
    ) -> Result<(), EsmError> {
        self.check_layer(depth)?;
        let how = (depth, self.dtype);
        match &self.compute {
            Compute::Cpu(model) => model.hidden_states(batch, how, visit),
            Compute::Cuda(_) => Err(EsmError::Library {
                exit: Exit::Internal,
                message: "the library for GPUs shows no hidden states".to_owned(),
            }),
        }
    }

    fn check_layer(&self, layer: usize) -> Result<(), EsmError> {
        let layers = self.config.layers;
        if layer > layers {
            return Err(NoSuchLayer { layer, layers }.into());
        }
        Ok(())
    }
}
