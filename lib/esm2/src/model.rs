//! The model: computes hidden states, vectors, logits and contacts of a batch.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plmkit_contract::{Column, NoSuchLayer, Stop};
use plmkit_cpu::Isa;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::body::LayerObserver;
use crate::checkpoint::{self, Checkpoint};
use crate::device_batch::DeviceBatch;
use crate::heads::Contacts;
use crate::pending::{OnDevice, PendingOutput};
use crate::shim::{cuda_memory, cuda_release, cuda_used};
use crate::threads::set_libtorch_threads;
use crate::timing::{Span, Work};
use crate::transfer::{Transfer, Values};
use crate::weights::Weights;
use crate::{Buffer, ComputeOptions, Device, Dtype, EsmError, Head, ModelConfig, Varlen};

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
    weights: Weights,
    transfer: Transfer,
    dtype: Dtype,
    kernels: String,
    /// The instruction set of plmkit's CPU kernels, if they compute the layers.
    own: Option<Isa>,
    load_times: LoadTimes,
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

/// Receives each layer's number and output, `(total_tokens, hidden)` f32 on the device. The next layer overwrites the tensor.
pub type Visit<'a> = dyn FnMut(usize, &Tensor) -> Result<(), EsmError> + 'a;

impl Esm2 {
    /// Loads the Hugging Face checkpoint in the folder `model`, or in the weight file `model` with `config.json` beside it.
    /// Weights are safetensors or PyTorch files, one or several. `stop` is polled between tensors.
    pub fn load(model: &Path, options: ComputeOptions, stop: &Stop) -> Result<Self, EsmError> {
        let started = Instant::now();
        let plan = options.plan_for(&options.device.open()?)?;
        // Loading only copies, and libtorch would keep the threads.
        set_libtorch_threads(NonZeroUsize::MIN);
        let dtype = plan.dtype;
        let _no_grad = tch::no_grad_guard();
        let Checkpoint {
            config,
            digest,
            weights,
            compiled,
        } = checkpoint::load(model, plan, stop)?;
        Ok(Self {
            source: model.to_owned(),
            config,
            digest,
            transfer: Transfer::new(plan.device, options.profile)?,
            dtype,
            kernels: weights.body.kernels(),
            weights,
            own: plan.own,
            load_times: LoadTimes {
                all: started.elapsed(),
                compiled,
                pinned: None,
            },
        })
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`, if the device uses such memory. Allocating it
    /// is slow, and a larger batch cannot use the memory of a smaller one.
    pub fn reserve(
        &mut self,
        (sequences, tokens): (usize, usize),
        columns: &[Column],
    ) -> Result<(), EsmError> {
        let started = Instant::now();
        let (hidden, f32) = (self.config.hidden, size_of::<f32>());
        // Token ids, positions, offsets of sequences, and rows of residues.
        let mut sizes = vec![tokens, tokens * f32, (sequences + 1) * f32, tokens * 8];
        sizes.extend(columns.iter().filter_map(|&column| match column {
            Column::Pooled(_) => Some(sequences * hidden * f32),
            Column::Residues(_) | Column::Logits => Some(column.values(tokens, hidden) * f32),
            // Each sequence has its own memory.
            Column::Contacts => None,
        }));
        if self.transfer.reserve(&sizes)? {
            self.load_times.pinned = Some(started.elapsed());
            self.load_times.all += started.elapsed();
        }
        Ok(())
    }

    /// Loads the same checkpoint in f32, for comparison; `None` unless plmkit's CPU kernels compute it. Packs each layer when it
    /// computes it, so that only one layer is in memory.
    pub fn in_f32(&self, stop: &Stop) -> Result<Option<Self>, EsmError> {
        let Some(isa) = self.own else {
            return Ok(None);
        };
        let _no_grad = tch::no_grad_guard();
        let weights = checkpoint::stream(&self.source, isa, stop)?;
        Ok(Some(Self {
            source: self.source.clone(),
            config: self.config.clone(),
            digest: self.digest.clone(),
            transfer: Transfer::new(tch::Device::Cpu, false)?,
            dtype: Dtype::F32,
            kernels: weights.body.kernels(),
            weights,
            own: self.own,
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

    /// Returns the device of the model: `cpu` or `cuda:0`.
    pub fn device(&self) -> String {
        match self.transfer.device() {
            tch::Device::Cuda(index) => format!("cuda:{index}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Returns the GPU's name and total memory in bytes; `None` on a CPU.
    pub fn gpu(&self) -> Result<Option<(String, usize)>, EsmError> {
        let tch::Device::Cuda(index) = self.transfer.device() else {
            return Ok(None);
        };
        Ok(Some((Device::gpu_name(index)?, cuda_memory(index)?)))
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub fn used_memory_mib(&self) -> Option<(u64, u64)> {
        let tch::Device::Cuda(index) = self.transfer.device() else {
            return None;
        };
        let (now, peak) = cuda_used(index).ok()?;
        Some((now as u64 >> 20, peak as u64 >> 20))
    }

    /// Returns what computes the layers: an instruction set of plmkit's CPU kernels, `onednn`, `cuda` or `libtorch`.
    pub fn kernels(&self) -> &str {
        &self.kernels
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
        let digest = self.weights.heads.digest(head);
        digest.map_err(|reason| EsmError::NoHead {
            model: self.source.clone(),
            head,
            reason: reason.clone(),
        })
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub fn release(&self) -> Result<(), EsmError> {
        match self.transfer.device() {
            tch::Device::Cuda(_) => cuda_release(),
            _ => Ok(()),
        }
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
        let depths = columns.iter().map(|&column| self.layer_of(column));
        let Some(depth) = depths.max() else {
            return Ok(PendingOutput::new(Vec::new(), None));
        };
        let transfer = &self.transfer;
        let by_residue = |column: &Column| matches!(column, Column::Residues(_) | Column::Logits);
        let rows = transfer.device() != tch::Device::Cpu && columns.iter().any(by_residue);
        let _no_grad = tch::no_grad_guard();
        let (batch, copied_in) = DeviceBatch::new(batch, dtype.kind(), transfer, rows)?;
        let begin = transfer.mark()?;
        let wanted = columns.contains(&Column::Contacts);
        let contacts = match &self.weights.heads.contact {
            Ok(found) if wanted => {
                let device = transfer.device();
                Some(Contacts::new(&found.head, batch.varlen, device)?)
            }
            _ => None,
        };
        let mut collector = Collector {
            model: self,
            batch: &batch,
            columns,
            values: columns
                .iter()
                .map(|_| Values::Here(Buffer::default()))
                .collect(),
            contacts,
            stop,
        };
        self.forward(&batch, depth, &mut collector)?;
        let mut values = collector.values;
        let mut places = columns.iter().zip(&mut values);
        if let (Some(contacts), Some((_, place))) = (
            collector.contacts,
            places.find(|(column, _)| **column == Column::Contacts),
        ) {
            *place = contacts.finish(transfer)?;
        }
        let on_device = match (copied_in, begin, transfer.mark()?) {
            (Some(copied_in), Some(begin), Some(end)) => Some(OnDevice {
                copied_in,
                computed: Span::new(begin, end),
                laps: batch.laps,
            }),
            _ => None,
        };
        Ok(PendingOutput::new(values, on_device))
    }

    /// Computes layers 1 to `depth` and calls `visit` with the output of each, and with layer 0.
    ///
    /// As in fair-esm's `representations`, layer 0 is the scaled embedding, layer `i` is the residual stream after
    /// transformer layer `i`, and the last layer of the model is the output of the final `LayerNorm`.
    pub fn hidden_states(
        &self,
        batch: Varlen<'_>,
        depth: usize,
        visit: &mut Visit,
    ) -> Result<(), EsmError> {
        let (batch, _) = DeviceBatch::new(batch, self.dtype.kind(), &self.transfer, false)?;
        let mut visitor = Visitor {
            model: self,
            batch: &batch,
            visit,
        };
        self.forward(&batch, depth, &mut visitor)
    }

    /// Returns the layer that a column is computed from.
    fn layer_of(&self, column: Column) -> usize {
        let last = self.config.layers;
        column.layer().map_or(last, |layer| layer as usize)
    }

    /// Returns the output of a layer, `(total_tokens, hidden)` f32, for the residual stream `x`.
    fn layer_output(
        &self,
        layer: usize,
        batch: &DeviceBatch,
        x: &Tensor,
    ) -> Result<Tensor, EsmError> {
        let own = batch.own(x)?;
        if layer == self.config.layers {
            self.weights.final_norm.forward(&own)
        } else {
            Ok(own)
        }
    }

    fn forward(
        &self,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), EsmError> {
        let layers = self.config.layers;
        if depth > layers {
            let layer = depth;
            return Err(NoSuchLayer { layer, layers }.into());
        }
        set_libtorch_threads(self.weights.body.libtorch_threads());
        let _no_grad = tch::no_grad_guard();
        let Weights {
            embedding, body, ..
        } = &self.weights;
        let x = body.embed(embedding, batch)?; // (rows, hidden)
        body.forward(x, batch, depth, observer)
    }
}

/// Computes the columns of a batch from its layers.
struct Collector<'a> {
    model: &'a Esm2,
    batch: &'a DeviceBatch<'a>,
    columns: &'a [Column],
    /// The values of each column.
    values: Vec<Values>,
    contacts: Option<Contacts<'a>>,
    stop: &'a Stop,
}

impl LayerObserver for Collector<'_> {
    fn hidden(
        &mut self,
        layer: usize,
        x: &dyn Fn() -> Result<Tensor, EsmError>,
    ) -> Result<(), EsmError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped);
        }
        let Self { model, batch, .. } = *self;
        let columns = self.columns.iter().zip(&mut self.values);
        let columns = columns.filter(|(column, _)| model.layer_of(**column) == layer);
        let mut columns = columns.peekable();
        if columns.peek().is_none() {
            return Ok(());
        }
        let hidden = model.layer_output(layer, batch, &x()?)?;
        batch.lap(Work::Collect)?;
        for (&column, values) in columns {
            match (column, &model.weights.heads.language_model) {
                (Column::Pooled(column), _) => {
                    let pooled = model.weights.body.pool(&hidden, batch, column.pool)?;
                    *values = model.transfer.download([Ok(pooled)])?;
                }
                (Column::Residues(_), _) => {
                    *values = batch.residues(&hidden, &model.transfer)?;
                }
                (Column::Logits, Ok(found)) => {
                    let logits = found.head.forward(&hidden)?;
                    *values = batch.residues(&logits, &model.transfer)?;
                }
                _ => {}
            }
        }
        batch.lap(Work::Pooling)
    }

    fn attention(&mut self, qkv: &dyn Fn() -> Result<Tensor, EsmError>) -> Result<(), EsmError> {
        match &mut self.contacts {
            Some(contacts) => contacts.add(&qkv()?),
            None => Ok(()),
        }
    }
}

/// Passes every layer to a caller.
struct Visitor<'a, 'v> {
    model: &'a Esm2,
    batch: &'a DeviceBatch<'a>,
    visit: &'a mut Visit<'v>,
}

impl LayerObserver for Visitor<'_, '_> {
    fn hidden(
        &mut self,
        layer: usize,
        x: &dyn Fn() -> Result<Tensor, EsmError>,
    ) -> Result<(), EsmError> {
        (self.visit)(layer, &self.model.layer_output(layer, self.batch, &x()?)?)
    }

    fn attention(&mut self, _: &dyn Fn() -> Result<Tensor, EsmError>) -> Result<(), EsmError> {
        Ok(())
    }
}
