//! The layers of a model for plmkit's own kernels, packed from where their weights are stored.

use std::borrow::Cow;
use std::sync::Arc;

use plmkit_cpu::{Isa, Layer, LayerNorm, Multiply, Panel, Weights};

use super::parameters::layer_name;
use super::stored::{Entry, Stored};
use crate::rope::unpaired;
use crate::{EsmError, ModelConfig};

/// A layer whose weights are zeros until its [`jobs`] are done.
pub(super) fn layer(
    config: &ModelConfig,
    stored: &Stored<'_>,
    number: usize,
    inv_freq: Vec<f32>,
    (isa, multiply): (Isa, Multiply),
) -> Result<Layer, EsmError> {
    let layer = layer_name(number);
    let values = |name: &str| stored.entry(&format!("{layer}.{name}")).values();
    let norm = |module: &str| LayerNorm {
        weight: values(&format!("{module}.weight")),
        bias: values(&format!("{module}.bias")),
        eps: config.layer_norm_eps as f32,
    };
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let weights = |inputs: usize, bias: &[f32]| -> Result<Weights, EsmError> {
        let mut bias = bias.to_vec();
        if multiply == Multiply::Bf16 {
            // Biases are of the type of the weights.
            let round = |value: &mut f32| *value = half::bf16::from_f32(*value).to_f32();
            bias.iter_mut().for_each(round);
        }
        Ok(Weights::zeros(isa, multiply, inputs, &bias)?)
    };
    let [query, key, value] =
        ["query", "key", "value"].map(|part| values(&format!("attention.self.{part}.bias")));
    let paired = |bias: &[f32]| -> Vec<f32> {
        let rows = 0..bias.len();
        rows.map(|row| bias[unpaired(row, config.head_dim())])
            .collect()
    };
    let bias = [paired(&query), paired(&key), value].concat();
    Ok(Layer {
        attention_norm: norm("attention.LayerNorm"),
        qkv: weights(hidden, &bias)?,
        inv_freq,
        out: weights(hidden, &values("attention.output.dense.bias"))?,
        ffn_norm: norm("LayerNorm"),
        up: weights(hidden, &values("intermediate.dense.bias"))?,
        down: weights(intermediate, &values("output.dense.bias"))?,
    })
}

/// What packs the weights of a layer, panel by panel.
pub(super) fn jobs<'a>(
    layer: &'a mut Layer,
    config: &ModelConfig,
    stored: &'a Stored<'a>,
    number: usize,
) -> Vec<Job<'a>> {
    let name = layer_name(number);
    let entry = |module: &str| stored.entry(&format!("{name}.{module}.weight"));
    let projections = ["query", "key", "value"];
    let projections = projections.map(|part| entry(&format!("attention.self.{part}")));
    let head_dim = config.head_dim();
    let dense = |module: &str| vec![entry(module)];
    let matrices = [
        (&mut layer.qkv, projections.to_vec(), Some(head_dim)),
        (&mut layer.out, dense("attention.output.dense"), None),
        (&mut layer.up, dense("intermediate.dense"), None),
        (&mut layer.down, dense("output.dense"), None),
    ];
    let jobs = matrices
        .into_iter()
        .flat_map(|(weights, entries, head_dim)| {
            let matrix = Arc::new(Matrix { entries, head_dim });
            let panels = weights.panels().into_iter();
            panels.map(move |panel| Job {
                panel,
                matrix: Arc::clone(&matrix),
            })
        });
    jobs.collect()
}

/// Where the rows of a dense layer are stored.
struct Matrix<'a> {
    /// One below the other, of the same shape.
    entries: Vec<&'a Entry<'a>>,
    /// Channels of a head, where queries and keys, the first two, are [paired](crate::rope::pair_channels).
    head_dim: Option<usize>,
}

impl<'a> Matrix<'a> {
    /// Where the weights of an output are stored: a tensor and its row.
    fn row(&self, output: usize) -> (&'a Entry<'a>, usize) {
        let rows = self.entries[0].size(0);
        let (number, row) = (output / rows, output % rows);
        let row = match self.head_dim {
            Some(head_dim) if number < 2 => unpaired(row, head_dim),
            _ => row,
        };
        (self.entries[number], row)
    }
}

/// A panel to be packed.
pub(super) struct Job<'a> {
    panel: Panel<'a>,
    matrix: Arc<Matrix<'a>>,
}

impl<'a> Job<'a> {
    fn rows(&self) -> impl Iterator<Item = (&'a Entry<'a>, usize)> {
        self.panel.outputs().map(|output| self.matrix.row(output))
    }

    /// The tensor and the byte of it that its first weight begins with.
    pub(super) fn begins(&self) -> (&'a Entry<'a>, usize) {
        let (entry, row) = self.matrix.row(self.panel.outputs().start);
        (entry, row * entry.size(1) * entry.stored().bytes())
    }

    /// It will be packed.
    pub(super) fn announce(&self) {
        self.rows().for_each(|(entry, _)| entry.announce());
    }

    /// Packs it.
    pub(super) fn pack(mut self) {
        let rows: Vec<(_, Cow<'_, [u8]>)> = self
            .rows()
            .map(|(entry, row)| (entry.stored(), entry.row(row)))
            .collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(stored, row)| (*stored, &row[..]))
            .collect();
        self.panel.pack(&rows);
        self.rows().for_each(|(entry, _)| entry.was_read());
    }
}
