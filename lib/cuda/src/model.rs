//! A model on libtorch: on a GPU, or on a CPU by libtorch's operations.

use std::num::NonZeroUsize;

use plmkit_contract::{Column, Stop};
use plmkit_esm2::{Dtype, EsmError, ModelConfig, Varlen, Work};
use tch::Tensor;

use crate::CudaError;
use crate::body::LayerObserver;
use crate::device_batch::DeviceBatch;
use crate::heads::Contacts;
use crate::kind::kind_of;
use crate::libtorch::set_threads;
use crate::pending::{OnDevice, PendingColumns};
use crate::shim::{cuda_release, cuda_used};
use crate::timing::Span;
use crate::transfer::{Transfer, Values};
use crate::weights::Weights;

/// A model on libtorch.
#[derive(Debug)]
pub(crate) struct TorchModel {
    weights: Weights,
    layers: usize,
    hidden: usize,
    transfer: Transfer,
    /// CPU threads of libtorch.
    threads: NonZeroUsize,
}

impl TorchModel {
    /// Computes with the weights of a model on `device`, on a CPU with `threads`. Measures kinds of work if `profile`.
    pub(crate) fn new(
        config: &ModelConfig,
        weights: Weights,
        (device, profile): (tch::Device, bool),
        threads: NonZeroUsize,
    ) -> Result<Self, CudaError> {
        Ok(Self {
            weights,
            layers: config.layers,
            hidden: config.hidden,
            transfer: Transfer::new(device, profile)?,
            threads,
        })
    }

    /// Returns what computes the layers: `cuda` or `libtorch`.
    pub(crate) fn kernels(&self) -> String {
        self.weights.body.kernels()
    }

    /// Returns the number of the GPU; `None` for a CPU.
    pub(crate) fn gpu(&self) -> Option<usize> {
        match self.transfer.device() {
            tch::Device::Cuda(index) => Some(index),
            _ => None,
        }
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub(crate) fn used_memory_mib(&self) -> Option<(u64, u64)> {
        let (now, peak) = cuda_used(self.gpu()?).ok()?;
        Some((now as u64 >> 20, peak as u64 >> 20))
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub(crate) fn release(&self) -> Result<(), CudaError> {
        self.gpu().map_or(Ok(()), |_| cuda_release())
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`. Returns whether the device uses such memory.
    pub(crate) fn reserve(
        &self,
        (sequences, tokens): (usize, usize),
        columns: &[Column],
    ) -> Result<bool, CudaError> {
        let (hidden, f32) = (self.hidden, size_of::<f32>());
        // Token ids, positions, offsets of sequences, and rows of residues.
        let mut sizes = vec![tokens, tokens * f32, (sequences + 1) * f32, tokens * 8];
        sizes.extend(columns.iter().filter_map(|&column| match column {
            Column::Pooled { .. } => Some(sequences * hidden * f32),
            Column::Residues(_) | Column::Logits => Some(column.values(tokens, hidden) * f32),
            // Each sequence has its own memory.
            Column::Contacts => None,
        }));
        self.transfer.reserve(&sizes)
    }

    /// Begins to compute `columns` of a batch, which need the first `depth` layers. All heads that they need are there.
    pub(crate) fn begin(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        (depth, dtype): (usize, Dtype),
        stop: &Stop,
    ) -> Result<PendingColumns, CudaError> {
        let transfer = &self.transfer;
        let by_residue = |column: &Column| matches!(column, Column::Residues(_) | Column::Logits);
        let rows = self.gpu().is_some() && columns.iter().any(by_residue);
        let _no_grad = tch::no_grad_guard();
        let (batch, copied_in) = DeviceBatch::new(batch, kind_of(dtype), transfer, rows)?;
        let begin = transfer.mark()?;
        let wanted = columns.contains(&Column::Contacts);
        let contacts = match &self.weights.contact {
            Some(head) if wanted => Some(Contacts::new(head, batch.varlen, transfer.device())?),
            _ => None,
        };
        let mut collector = Collector {
            model: self,
            batch: &batch,
            columns,
            values: columns.iter().map(|_| Values::default()).collect(),
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
        Ok(PendingColumns {
            columns: values,
            on_device,
        })
    }

    /// Returns the output of a layer, `(total_tokens, hidden)` f32, for the residual stream `x`.
    fn layer_output(
        &self,
        layer: usize,
        batch: &DeviceBatch,
        x: &Tensor,
    ) -> Result<Tensor, CudaError> {
        let own = batch.own(x)?;
        if layer == self.layers {
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
    ) -> Result<(), CudaError> {
        set_threads(self.threads);
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
    model: &'a TorchModel,
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
        x: &dyn Fn() -> Result<Tensor, CudaError>,
    ) -> Result<(), CudaError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped.into());
        }
        let Self { model, batch, .. } = *self;
        let columns = self.columns.iter().zip(&mut self.values);
        let columns = columns.filter(|(column, _)| column.depth(model.layers) == layer);
        let mut columns = columns.peekable();
        if columns.peek().is_none() {
            return Ok(());
        }
        let hidden = model.layer_output(layer, batch, &x()?)?;
        batch.lap(Work::Collect)?;
        for (&column, values) in columns {
            match (column, &model.weights.language_model) {
                (Column::Pooled { pool, .. }, _) => {
                    let pooled = model.weights.body.pool(&hidden, batch, pool)?;
                    *values = model.transfer.download([Ok(pooled)])?;
                }
                (Column::Residues(_), _) => {
                    *values = batch.residues(&hidden, &model.transfer)?;
                }
                (Column::Logits, Some(head)) => {
                    let logits = head.forward(&hidden)?;
                    *values = batch.residues(&logits, &model.transfer)?;
                }
                _ => {}
            }
        }
        batch.lap(Work::Pooling)
    }

    fn attention(&mut self, qkv: &dyn Fn() -> Result<Tensor, CudaError>) -> Result<(), CudaError> {
        match &mut self.contacts {
            Some(contacts) => contacts.add(&qkv()?),
            None => Ok(()),
        }
    }
}
