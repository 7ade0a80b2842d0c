//! A model on libtorch: on a GPU, or on a CPU by libtorch's operations.

use std::num::NonZeroUsize;

use plmkit_contract::{Column, Widths};
use plmkit_esm2::Pass;
use plmkit_esm2::cuda::MemoryAsked;
use plmkit_esm2::{EsmError, KernelKind, Varlen};
use plmkit_kit::Stop;
use tch::Tensor;

use crate::CudaError;
use crate::device_batch::DeviceBatch;
use crate::embedding::Embedding;
use crate::encoder::{Encoder, Observer, kind_of};
use crate::heads::{ContactHead, Contacts, LanguageModelHead};
use crate::layer_norm::LayerNorm;
use crate::libtorch::set_threads;
use crate::shim::{cuda_release, cuda_used};
use crate::timing::Span;
use crate::transfer::{Pending, Transfer, Values};

/// A model on a device.
#[derive(Debug)]
pub(crate) struct TorchModel {
    pub(crate) embedding: Embedding,
    pub(crate) encoder: Encoder,
    /// Applied after the last layer.
    pub(crate) final_norm: LayerNorm,
    pub(crate) language_model: Option<LanguageModelHead>,
    pub(crate) contact: Option<ContactHead>,
    pub(crate) widths: Widths,
    pub(crate) transfer: Transfer,
    /// CPU threads of libtorch.
    pub(crate) threads: NonZeroUsize,
    pub(crate) stop: Stop,
}

impl TorchModel {
    /// Returns the number of the GPU; `None` for a CPU.
    fn gpu(&self) -> Option<usize> {
        match self.transfer.device() {
            tch::Device::Cuda(index) => Some(index),
            _ => None,
        }
    }

    /// Does what `asked` says. Returns the MiB of device memory that tensors hold now, and the most since the last call; `None` on a
    /// CPU.
    pub(crate) fn memory(&self, asked: &MemoryAsked) -> Result<Option<(u64, u64)>, CudaError> {
        let Some(gpu) = self.gpu() else {
            return Ok(None);
        };
        match asked {
            MemoryAsked::Used => {}
            MemoryAsked::Release => cuda_release()?,
            MemoryAsked::Reserve {
                sequences,
                tokens,
                columns,
            } => self.reserve(*sequences, *tokens, columns)?,
        }
        let used = cuda_used(gpu).ok();
        Ok(used.map(|(now, peak)| (now as u64 >> 20, peak as u64 >> 20)))
    }

    /// Allocates page-locked memory for batches of up to `sequences` and `tokens`.
    fn reserve(
        &self,
        sequences: usize,
        tokens: usize,
        columns: &[Column],
    ) -> Result<(), CudaError> {
        let (widths, f32) = (self.widths, size_of::<f32>());
        // Token ids, positions, offsets of sequences, and rows of residues.
        let mut sizes = vec![tokens, tokens * f32, (sequences + 1) * f32, tokens * 8];
        sizes.extend(columns.iter().filter_map(|&column| match column {
            Column::Pooled { .. } => Some(sequences * widths.dim * f32),
            Column::Residues(_) | Column::Logits => Some(column.values(tokens, widths) * f32),
            // Each sequence has its own memory; the caller makes scores of logits.
            Column::Contacts | Column::LogProbs | Column::LogLikelihood => None,
        }));
        Transfer::reserve(&sizes)
    }

    /// Begins a pass over a batch. All heads that it needs are there.
    pub(crate) fn submit(&self, batch: Varlen<'_>, pass: &Pass) -> Result<Pending, CudaError> {
        let (transfer, columns) = (&self.transfer, &pass.columns[..]);
        let by_residue = |column: &Column| matches!(column, Column::Residues(_) | Column::Logits);
        let rows = self.gpu().is_some() && columns.iter().any(by_residue);
        let _no_grad = tch::no_grad_guard();
        let (batch, copied_in) = DeviceBatch::new(batch, kind_of(pass.dtype), transfer, rows)?;
        let begin = transfer.record()?;
        let wanted = columns.contains(&Column::Contacts);
        let contacts = match &self.contact {
            Some(head) if wanted => {
                let spans = batch.varlen.spans();
                let contacts = spans.map(|span| Contacts::new(head, &span, transfer.device()));
                contacts.collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        let mut collector = Collector {
            model: self,
            batch: &batch,
            columns,
            values: columns.iter().map(|_| Values::default()).collect(),
            contacts,
        };
        set_threads(self.threads);
        let embedded = self.encoder.embed(&self.embedding, &batch)?; // (rows, hidden)
        self.encoder
            .forward(embedded, &batch, pass.depth, &mut collector)?;
        let mut values = collector.values;
        let mut places = columns.iter().zip(&mut values);
        if let Some((_, place)) = places.find(|(column, _)| **column == Column::Contacts) {
            let contacts = collector.contacts.into_iter();
            *place = transfer.download(contacts.map(Contacts::finish))?;
        }
        let computed = begin.zip(transfer.record()?);
        let computed = computed.map(|(begin, end)| Span { begin, end });
        Ok(Pending {
            columns: values,
            spans: copied_in.zip(computed),
            timer: batch.timer,
        })
    }
}

/// Computes the columns of a batch from its layers.
struct Collector<'a> {
    model: &'a TorchModel,
    batch: &'a DeviceBatch<'a>,
    columns: &'a [Column],
    /// The values of each column.
    values: Vec<Values>,
    /// Of each sequence, if asked for.
    contacts: Vec<Contacts<'a>>,
}

impl Observer for Collector<'_> {
    fn hidden(&mut self, layer: usize, x: &Tensor) -> Result<(), CudaError> {
        let Self { model, batch, .. } = *self;
        if model.stop.requested() {
            return Err(EsmError::Stopped.into());
        }
        let layers = model.encoder.layers.len();
        let columns = self.columns.iter().zip(&mut self.values);
        let columns = columns.filter(|(column, _)| column.depth(layers) == layer);
        let mut columns = columns.peekable();
        if columns.peek().is_none() {
            return Ok(());
        }
        let mut hidden = batch.own(x)?; // (total_tokens, hidden)
        if layer == layers {
            hidden = model.final_norm.forward(&hidden)?;
        }
        batch.time(KernelKind::Collect)?;
        for (&column, values) in columns {
            match (column, &model.language_model) {
                (Column::Pooled { pool, .. }, _) => {
                    let pooled = model.encoder.pool(&hidden, batch, pool)?;
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
        batch.time(KernelKind::Pooling)
    }

    fn attention(&mut self, qkv: &Tensor) -> Result<(), CudaError> {
        let mut contacts = self.contacts.iter_mut();
        contacts.try_for_each(|contacts| contacts.add(qkv))
    }
}
