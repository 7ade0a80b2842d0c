//! The model: computes vectors, logits and contacts of a batch.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plmkit_contract::Column;
use plmkit_kit::Stop;

use crate::checkpoint;
use crate::compute_options::check_widths;
use crate::cpu::CpuModel;
use crate::cuda::{CudaModel, MemoryAsked, Opening};
use crate::pass::Pass;
use crate::thread_pool::threads;
use crate::{Buffer, Buffers, ComputeOptions, Dtype, EsmError, Kernels, ModelInfo, Ticket, Varlen};

/// A model on a device.
///
/// ```
/// # use std::path::Path;
/// use plmkit_contract::Column;
/// use plmkit_esm2::{Esm2, ComputeOptions, Varlen};
/// use plmkit_kit::Stop;
///
/// # let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-data/model-tiny"));
/// let model = Esm2::load(folder, ComputeOptions::default(), &Stop::default())?;
/// let tokens = [0, 20, 5, 2, 0, 6, 2]; // <cls> M A <eos> <cls> G <eos>
/// let batch = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
/// let columns = ["mean_4", "contacts"].map(|name| name.parse::<Column>().unwrap());
/// let values = model.embed(batch, &columns, model.info().dtype, &Stop::default())?;
/// assert_eq!(values[0].len(), 2 * model.info().config().hidden);
/// assert_eq!(values[1].len(), 2 * 2 + 1);
/// # Ok::<(), plmkit_esm2::EsmError>(())
/// ```
pub struct Esm2 {
    /// The folder or weight file.
    source: PathBuf,
    info: ModelInfo,
    backend: Backend,
    buffers: Buffers<f32>,
}

/// Returns the facts about a model before its weights are in memory, without the time of loading and the memory of a GPU, and a text
/// with which the next call need not hash the files: `known` is that text, or any other, which tells nothing.
///
/// Kernels for a GPU are those that are to compute. If they do not compile, the loaded model tells others.
pub fn describe(
    model: &Path,
    options: ComputeOptions,
    known: &str,
    stop: &Stop,
) -> Result<(ModelInfo, String), EsmError> {
    let resolved = options.resolve()?;
    let (checkpoint, known) = checkpoint::identify(model, known, stop)?;
    check_widths(model, &checkpoint.config, resolved.dtype)?;
    let gpu = resolved.gpu.map(|gpu| (gpu, 0));
    let info = ModelInfo::new(checkpoint, gpu, resolved.dtype, resolved.kernels);
    Ok((info, known))
}

/// What computes batches: plmkit's kernels for a CPU, or the library for GPUs.
enum Backend {
    Cpu(Box<CpuModel>),
    Cuda(CudaModel),
}

impl Esm2 {
    /// Loads the Hugging Face checkpoint in the folder `model`, or in the weight file `model` with `config.json` beside it.
    /// Weights are safetensors or PyTorch files, one or several. `stop` is polled between tensors,
    /// and on a GPU while batches are computed.
    pub fn load(model: &Path, options: ComputeOptions, stop: &Stop) -> Result<Self, EsmError> {
        Self::load_known(model, options, "", stop)
    }

    /// As [`load`](Self::load), but does not hash files that `known` tells of: the text that [`describe`] has returned when it hashed
    /// them a moment ago.
    pub fn load_known(
        model: &Path,
        options: ComputeOptions,
        known: &str,
        stop: &Stop,
    ) -> Result<Self, EsmError> {
        let started = Instant::now();
        let resolved = options.resolve()?;
        let (mut info, backend) = if let Some(isa) = resolved.isa {
            let (checkpoint, cpu) = checkpoint::load_cpu(model, isa, resolved.dtype, known, stop)?;
            let info = ModelInfo::new(checkpoint, None, resolved.dtype, resolved.kernels);
            (info, Backend::Cpu(Box::new(cpu)))
        } else {
            let opening = Opening {
                model: model.as_os_str().to_owned(),
                known: known.to_owned(),
                gpu: resolved.gpu,
                dtype: resolved.dtype,
                fused: options.kernels != Kernels::Libtorch,
                profile: options.profile,
                threads: threads(),
            };
            let (info, cuda) = CudaModel::open(&opening, stop)?;
            check_widths(model, info.config(), resolved.dtype)?;
            (info, Backend::Cuda(cuda))
        };
        info.load_times.all = started.elapsed();
        Ok(Self {
            source: model.to_owned(),
            info,
            backend,
            buffers: Buffers::default(),
        })
    }

    /// The facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`, if the device uses such memory. Allocating it
    /// is slow, and a larger batch cannot use the memory of a smaller one.
    pub fn reserve(
        &mut self,
        sequences: usize,
        tokens: usize,
        columns: &[Column],
    ) -> Result<(), EsmError> {
        let started = Instant::now();
        let columns = columns.to_vec();
        let asked = MemoryAsked::Reserve {
            sequences,
            tokens,
            columns,
        };
        if self.memory(&asked)?.is_some() {
            self.info.load_times.pinned = Some(started.elapsed());
            self.info.load_times.all += started.elapsed();
        }
        Ok(())
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub fn used_memory_mib(&self) -> Option<(u64, u64)> {
        self.memory(&MemoryAsked::Used).ok()?
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub fn release(&self) -> Result<(), EsmError> {
        self.memory(&MemoryAsked::Release).map(drop)
    }

    fn memory(&self, asked: &MemoryAsked) -> Result<Option<(u64, u64)>, EsmError> {
        match &self.backend {
            Backend::Cpu(_) => Ok(None),
            Backend::Cuda(model) => model.memory(asked),
        }
    }

    /// Loads the same checkpoint in f32, for comparison; `None` if the model itself computes in f32 too, as the library for GPUs does. Packs each layer when it
    /// computes it, so that only one layer is in memory.
    pub fn in_f32(&self) -> Result<Option<Self>, EsmError> {
        let Backend::Cpu(own) = &self.backend else {
            return Ok(None);
        };
        let isa = own.readout.isa;
        Ok(Some(Self {
            source: self.source.clone(),
            info: ModelInfo {
                dtype: Dtype::F32,
                kernels: isa.for_weights(Dtype::F32).to_string(),
                ..self.info.clone()
            },
            backend: Backend::Cpu(Box::new(checkpoint::stream(&self.source, isa)?)),
            buffers: Buffers::default(),
        }))
    }

    /// Computes `columns`: for each column the f32 values of all sequences in turn, as many as [`Column::values`]. Layers that no
    /// column needs are not computed. If `dtype` is not the model's, weights are converted layer by layer, which is slow; those of
    /// fp8 from f16, those of int8 not at all. `stop` is polled between layers and gives [`EsmError::Stopped`].
    pub fn embed(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        dtype: Dtype,
        stop: &Stop,
    ) -> Result<Vec<Buffer<f32>>, EsmError> {
        let (values, _) = self.submit(batch, columns, dtype, stop)?.collect()?;
        Ok(values)
    }

    /// Begins the computation of [`embed`](Self::embed). A GPU computes while the program continues: the next batch can be submitted
    /// before this one is collected.
    pub fn submit(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        dtype: Dtype,
        stop: &Stop,
    ) -> Result<Ticket, EsmError> {
        self.info.heads_for(&self.source, columns)?;
        self.info.check_length(&self.source, batch.longest())?;
        let Some(depth) = self.info.depth(columns)? else {
            return Ok(Ticket::default());
        };
        let widths = self.info.config().widths();
        let mut values = batch.buffers(columns, widths, &self.buffers);
        let columns = columns.to_vec();
        let pass = Pass {
            columns,
            depth,
            dtype,
        };
        match &self.backend {
            Backend::Cpu(model) => {
                let mut x = self.buffers.take(batch.total_tokens() * widths.dim);
                model.compute(batch, &pass, &mut values, &mut x, stop)?;
                Ok(Ticket::of(values))
            }
            Backend::Cuda(model) => {
                let ticket = model.submit(batch, &pass, values)?;
                if self.info.gpu.is_some() {
                    return Ok(ticket);
                }
                // libtorch's operations on a CPU have computed it.
                ticket.collect().map(|(values, _)| Ticket::of(values))
            }
        }
    }
}

impl fmt::Debug for Esm2 {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Esm2").field(&self.info).finish()
    }
}
