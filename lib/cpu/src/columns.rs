//! The columns of a batch, from the layers of an encoder.

use std::num::NonZeroUsize;
use std::ops::{Deref, Range};

use plmkit_contract::Column;
use plmkit_kit::Stop;

use crate::aligned::{Aligned, OutOfMemory};
use crate::heads::Contacts;
use crate::pooling::pool;
use crate::team::share;
use crate::{ContactHead, Isa, LanguageModelHead, LayerNorm, Rows, RowsMut};

/// The parameters of a model after its layers.
#[derive(Debug)]
pub struct Readout {
    pub isa: Isa,
    /// The number of layers.
    pub layers: usize,
    /// The attention heads of a layer.
    pub heads: usize,
    /// Applied after the last layer.
    pub final_norm: LayerNorm,
    /// For logits.
    pub language_model: Option<LanguageModelHead>,
    /// For contacts.
    pub contact: Option<ContactHead>,
}

/// Why a batch was not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Memory is full. A smaller batch may fit.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

/// Computes columns while [`Encoder::forward`](crate::Encoder::forward) computes the layers.
#[derive(Debug)]
pub struct Collector<'a> {
    pub(crate) readout: &'a Readout,
    /// The row ranges that attend to themselves. They cover all rows in order.
    pub(crate) sequences: &'a [Range<usize>],
    /// Each column with its values, except for contacts.
    columns: Vec<(Column, &'a mut [f32])>,
    contacts: Option<Contacts<'a>>,
    pub(crate) threads: NonZeroUsize,
    stop: &'a Stop,
}

impl Readout {
    /// Applies the last `LayerNorm` to the output of the last layer, `(tokens, hidden)`.
    fn normalise(
        &self,
        x: &[f32],
        threads: NonZeroUsize,
    ) -> Result<impl Deref<Target = [f32]> + use<>, OutOfMemory> {
        let width = self.final_norm.weight.len();
        let mut normed = Aligned::zeros(x.len())?;
        let blocks = x.chunks(BLOCK * width);
        let blocks = blocks.zip(normed.chunks_mut(BLOCK * width)).collect();
        share(threads, blocks, |(x, out): (&[f32], &mut [f32])| {
            let into = &mut RowsMut::new(out, width);
            self.final_norm.apply(self.isa, Rows::new(x, width), into);
        });
        Ok(normed)
    }
}

/// The rows that a thread normalises at once.
const BLOCK: usize = 192;

impl<'a> Collector<'a> {
    /// Computes each of `columns` to its values: for all sequences in turn, as many as [`Column::values`]. `stop` is polled between
    /// layers.
    ///
    /// # Panics
    /// If a column needs a head that the model does not have.
    pub fn new(
        readout: &'a Readout,
        sequences: &'a [Range<usize>],
        columns: Vec<(Column, &'a mut [f32])>,
        threads: NonZeroUsize,
        stop: &'a Stop,
    ) -> Result<Self, ForwardError> {
        let is_contacts = |(column, _): &(Column, &mut [f32])| *column == Column::Contacts;
        let (contacts, columns): (Vec<_>, Vec<_>) = columns.into_iter().partition(is_contacts);
        let contacts = contacts.into_iter().next().map(|(_, values)| {
            let head = readout.contact.as_ref().expect("there is a contact head");
            Contacts::new(head, readout.heads, sequences, values, readout.isa, threads)
        });
        Ok(Self {
            readout,
            sequences,
            columns,
            contacts: contacts.transpose()?,
            threads,
            stop,
        })
    }

    /// Completes the columns after the last layer.
    pub fn finish(self) -> Result<(), ForwardError> {
        Ok(self.contacts.map_or(Ok(()), Contacts::finish)?)
    }

    /// Receives the output of a layer, `(tokens, hidden)`; that of layer 0 is the input.
    pub fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), ForwardError> {
        if self.stop.requested() {
            return Err(ForwardError::Stopped);
        }
        let layers = self.readout.layers;
        let width = self.readout.final_norm.weight.len();
        let wanted = |(column, _): &(Column, &mut [f32])| column.depth(layers) == layer;
        if !self.columns.iter().any(wanted) {
            return Ok(());
        }
        if layer < layers {
            self.collect(layer, Rows::new(x, width));
        } else {
            let normed = self.readout.normalise(x, self.threads)?;
            self.collect(layer, Rows::new(&normed, width));
        }
        Ok(())
    }

    /// Whether it needs [`attention`](Self::attention).
    pub(crate) fn sees_attention(&self) -> bool {
        self.contacts.is_some()
    }

    /// Receives queries, keys and values of the next layer, the first two rotated: `(tokens, 3·hidden)`.
    pub(crate) fn attention(&mut self, qkv: &[f32]) -> Result<(), ForwardError> {
        match &mut self.contacts {
            Some(contacts) => {
                let width = 3 * self.readout.final_norm.weight.len();
                Ok(contacts.add(Rows::new(qkv, width))?)
            }
            None => Ok(()),
        }
    }

    /// Computes the columns of a layer whose output is `x`, `(tokens, hidden)`.
    fn collect(&mut self, layer: usize, x: Rows<'_>) {
        let (readout, threads) = (self.readout, self.threads);
        let columns = self.columns.iter_mut();
        let columns = columns.filter(|(column, _)| column.depth(readout.layers) == layer);
        for (column, values) in columns {
            match *column {
                Column::Pooled { pool: how, .. } => {
                    let sequences = self.sequences.iter().zip(values.chunks_mut(x.width()));
                    let sequences = sequences.collect();
                    share(
                        threads,
                        sequences,
                        |(span, out): (&Range<usize>, &mut [f32])| {
                            let (from, to) = (span.start * x.width(), span.end * x.width());
                            pool(Rows::new(&x.values()[from..to], x.width()), how, out);
                        },
                    );
                }
                Column::Residues(_) => copy_residues(self.sequences, x, values),
                Column::Logits => {
                    let head = readout.language_model.as_ref();
                    let head = head.expect("there is a language-model head");
                    let width = head.decoder.outputs();
                    let mut logits = vec![0.0; x.rows() * width];
                    head.apply(readout.isa, x, &mut logits, threads);
                    copy_residues(self.sequences, Rows::new(&logits, width), values);
                }
                // The caller makes scores of logits.
                Column::Contacts | Column::LogProbs | Column::LogLikelihood => {}
            }
        }
    }
}

/// Copies the rows of `x`, `(tokens, width)`, that are residues.
fn copy_residues(sequences: &[Range<usize>], x: Rows<'_>, out: &mut [f32]) {
    let mut rest = out;
    for span in sequences {
        let residues = (span.start + 1) * x.width()..(span.end - 1) * x.width();
        let (own, others) = rest.split_at_mut(residues.len());
        own.copy_from_slice(&x.values()[residues]);
        rest = others;
    }
}
