//! The model: computes vectors, logits and contacts of a batch.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plmkit_contract::{Column, Stop};
use plmkit_cpu::Isa;

use crate::backend::{Backend, Ticket};
use crate::checkpoint;
use crate::cuda::{CudaModel, MemoryAsked};
use crate::{Buffer, ComputeOptions, Dtype, EsmError, LoadTimes, ModelInfo, Varlen};

/// A model on a device.
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
/// let values = model.embed(batch, &columns, model.info().dtype, &Stop::default())?;
/// assert_eq!(values[0].len(), 2 * model.info().config().hidden);
/// assert_eq!(values[1].len(), 2 * 2 + 1);
/// # Ok::<(), plmkit_esm2::EsmError>(())
/// ```
pub struct Esm2 {
    /// The folder or weight file.
    source: PathBuf,
    info: ModelInfo,
    backend: Box<dyn Backend>,
    /// The instruction set, if plmkit's CPU kernels compute.
    isa: Option<Isa>,
}

impl Esm2 {
    /// Loads the Hugging Face checkpoint in the folder `model`, or in the weight file `model` with `config.json` beside it.
    /// Weights are safetensors or PyTorch files, one or several. `stop` is polled between tensors,
    /// and on a GPU while batches are computed.
    pub fn load(model: &Path, options: ComputeOptions, stop: &Stop) -> Result<Self, EsmError> {
        let started = Instant::now();
        let plan = options.plan()?;
        let isa = plan.cpu_isa;
        let (mut info, backend): (_, Box<dyn Backend>) = if let Some(isa) = isa {
            let (checkpoint, cpu) = checkpoint::load_cpu(model, (isa, plan.dtype), stop)?;
            let info = ModelInfo {
                checkpoint,
                device: "cpu".to_owned(),
                gpu: None,
                dtype: plan.dtype,
                kernels: isa.for_weights(plan.dtype).to_string(),
                load_times: LoadTimes::default(),
            };
            (info, Box::new(cpu))
        } else {
            let (info, cuda) = CudaModel::open(model, plan, options.profile, stop)?;
            (info, Box::new(cuda))
        };
        info.load_times.all = started.elapsed();
        Ok(Self {
            source: model.to_owned(),
            info,
            backend,
            isa,
        })
    }

    /// The facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`, if the device uses such memory. Allocating it
    /// is slow, and a larger batch cannot use the memory of a smaller one.
    pub fn reserve(&mut self, largest: (usize, usize), columns: &[Column]) -> Result<(), EsmError> {
        let started = Instant::now();
        let columns = columns.to_vec();
        let asked = MemoryAsked::Reserve { largest, columns };
        if self.backend.memory(&asked)?.is_some() {
            self.info.load_times.pinned = Some(started.elapsed());
            self.info.load_times.all += started.elapsed();
        }
        Ok(())
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub fn used_memory_mib(&self) -> Option<(u64, u64)> {
        self.backend.memory(&MemoryAsked::Used).ok()?
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub fn release(&self) -> Result<(), EsmError> {
        self.backend.memory(&MemoryAsked::Release).map(drop)
    }

    /// Loads the same checkpoint in f32, for comparison; `None` unless plmkit's CPU kernels compute it. Packs each layer when it
    /// computes it, so that only one layer is in memory.
    pub fn in_f32(&self) -> Result<Option<Self>, EsmError> {
        let Some(isa) = self.isa else {
            return Ok(None);
        };
        Ok(Some(Self {
            source: self.source.clone(),
            info: ModelInfo {
                dtype: Dtype::F32,
                kernels: isa.for_weights(Dtype::F32).to_string(),
                ..self.info.clone()
            },
            backend: Box::new(checkpoint::stream(&self.source, isa)?),
            isa: Some(isa),
        }))
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
        let longest = batch.spans().map(|span| span.len()).max();
        self.info.check_length(&self.source, longest.unwrap_or(0))?;
        match self.info.depth(columns)? {
            Some(depth) => self.backend.submit(batch, columns, (depth, dtype), stop),
            None => Ok(Ticket::default()),
        }
    }
}

impl fmt::Debug for Esm2 {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Esm2").field(&self.info).finish()
    }
}
