//! A model on libtorch: on a GPU, or on a CPU by libtorch's operations.

use std::num::NonZeroUsize;

use plmkit_contract::{Column, Stop};
use tch::Tensor;

use crate::body::LayerObserver;
use crate::device_batch::DeviceBatch;
use crate::heads::Contacts;
use crate::model::Visit;
use crate::pending::{OnDevice, PendingOutput};
use crate::shim::{cuda_memory, cuda_release, cuda_used};
use crate::threads::{set_libtorch_threads, threads};
use crate::timing::{Span, Work};
use crate::transfer::{Transfer, Values};
use crate::weights::Weights;
use crate::{Buffer, Device, Dtype, EsmError, Varlen};

/// A model on libtorch.
#[derive(Debug)]
pub(crate) struct TorchModel {
    weights: Weights,
    layers: usize,
    hidden: usize,
    transfer: Transfer,
}

impl TorchModel {
    /// Computes with weights on a device of `layers` layers and `hidden` channels.
    pub(crate) fn new(
        weights: Weights,
        (layers, hidden): (usize, usize),
        (device, profile): (tch::Device, bool),
    ) -> Result<Self, EsmError> {
        Ok(Self {
            weights,
            layers,
            hidden,
            transfer: Transfer::new(device, profile)?,
        })
    }

    /// Loading only copies, and libtorch would keep the threads.
    pub(crate) fn set_loading_threads() {
        set_libtorch_threads(NonZeroUsize::MIN);
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

    /// Returns the GPU's name and total memory in bytes; `None` on a CPU.
    pub(crate) fn gpu_memory(&self) -> Result<Option<(String, usize)>, EsmError> {
        let memory = |index| Ok((Device::gpu_name(index)?, cuda_memory(index)?));
        self.gpu().map(memory).transpose()
    }

    /// Returns the device memory that tensors hold now, and the most since the last call, in MiB; `None` on a CPU.
    pub(crate) fn used_memory_mib(&self) -> Option<(u64, u64)> {
        let (now, peak) = cuda_used(self.gpu()?).ok()?;
        Some((now as u64 >> 20, peak as u64 >> 20))
    }

    /// Frees device memory that is cached for later batches, so that fragments do not remain.
    pub(crate) fn release(&self) -> Result<(), EsmError> {
        self.gpu().map_or(Ok(()), |_| cuda_release())
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`. Returns whether the device uses such memory.
    pub(crate) fn reserve(
        &self,
        (sequences, tokens): (usize, usize),
        columns: &[Column],
    ) -> Result<bool, EsmError> {
        let (hidden, f32) = (self.hidden, size_of::<f32>());
        // Token ids, positions, offsets of sequences, and rows of residues.
        let mut sizes = vec![tokens, tokens * f32, (sequences + 1) * f32, tokens * 8];
        sizes.extend(columns.iter().filter_map(|&column| match column {
            Column::Pooled(_) => Some(sequences * hidden * f32),
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
    ) -> Result<PendingOutput, EsmError> {
        let transfer = &self.transfer;
        let by_residue = |column: &Column| matches!(column, Column::Residues(_) | Column::Logits);
        let rows = self.gpu().is_some() && columns.iter().any(by_residue);
        let _no_grad = tch::no_grad_guard();
        let (batch, copied_in) = DeviceBatch::new(batch, dtype.kind(), transfer, rows)?;
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

    /// Computes layers 0 to `depth` and calls `visit` with the output of each.
    pub(crate) fn hidden_states(
        &self,
        batch: Varlen<'_>,
        (depth, dtype): (usize, Dtype),
        visit: &mut Visit<'_>,
    ) -> Result<(), EsmError> {
        let _no_grad = tch::no_grad_guard();
        let (batch, _) = DeviceBatch::new(batch, dtype.kind(), &self.transfer, false)?;
        let mut visitor = Visitor {
            model: self,
            batch: &batch,
            visit,
        };
        self.forward(&batch, depth, &mut visitor)
    }

    /// Returns the output of a layer, `(total_tokens, hidden)` f32, for the residual stream `x`.
    fn layer_output(
        &self,
        layer: usize,
        batch: &DeviceBatch,
        x: &Tensor,
    ) -> Result<Tensor, EsmError> {
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
    ) -> Result<(), EsmError> {
        set_libtorch_threads(threads());
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
        x: &dyn Fn() -> Result<Tensor, EsmError>,
    ) -> Result<(), EsmError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped);
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
                (Column::Pooled(column), _) => {
                    let pooled = model.weights.body.pool(&hidden, batch, column.pool)?;
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

    fn attention(&mut self, qkv: &dyn Fn() -> Result<Tensor, EsmError>) -> Result<(), EsmError> {
        match &mut self.contacts {
            Some(contacts) => contacts.add(&qkv()?),
            None => Ok(()),
        }
    }
}

/// Passes every layer to a caller.
struct Visitor<'a, 'v> {
    model: &'a TorchModel,
    batch: &'a DeviceBatch<'a>,
    visit: &'a mut Visit<'v>,
}

impl LayerObserver for Visitor<'_, '_> {
    fn hidden(
        &mut self,
        layer: usize,
        x: &dyn Fn() -> Result<Tensor, EsmError>,
    ) -> Result<(), EsmError> {
        let hidden = self.model.layer_output(layer, self.batch, &x()?)?;
        (self.visit)(layer, &Vec::try_from(hidden.f_flatten(0, -1)?)?)
    }

    fn attention(&mut self, _: &dyn Fn() -> Result<Tensor, EsmError>) -> Result<(), EsmError> {
        Ok(())
    }
}
