//! Packs stored layers for plmkit's CPU kernels.

use std::sync::Arc;

use plmkit_cpu::{Isa, Layer, LayerNorm, Panel, Weights};

use super::CheckpointTensors;
use super::parameters::{GATE, QUERY_KEY_NORMS, layer_name};
use super::stored_tensor::StoredTensor;
use crate::rope::unpaired;
use crate::{Dtype, EsmError};

/// Returns a layer whose weights are not valid until its [`jobs`] are done. They have the memory of the layer `before`, if any.
pub(super) fn layer(
    tensors: &CheckpointTensors<'_>,
    number: usize,
    (isa, dtype): (Isa, Dtype),
    before: Option<Layer>,
) -> Result<Layer, EsmError> {
    let config = tensors.config();
    let layer = layer_name(number);
    let values = |name: &str| tensors.get(&format!("{layer}.{name}")).values();
    let bias = |module: &str, width| tensors.bias(&format!("{layer}.{module}"), width);
    let norm = |module: &str| LayerNorm {
        weight: values(&format!("{module}.weight")),
        bias: bias(module, config.hidden),
        eps: config.layer_norm_eps as f32,
    };
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let weights =
        |inputs: usize, bias: &[f32], before: Option<Weights>| -> Result<Weights, EsmError> {
            let mut bias = bias.to_vec();
            if dtype == Dtype::Bf16 {
                // Biases have the type of the weights.
                let round = |value: &mut f32| *value = half::bf16::from_f32(*value).to_f32();
                bias.iter_mut().for_each(round);
            }
            let reused = before.map(|before| before.reuse(&bias));
            Ok(reused.map_or_else(|| Weights::zeros(isa, dtype, inputs, &bias), Ok)?)
        };
    let [query, key, value] =
        ["query", "key", "value"].map(|part| bias(&format!("attention.self.{part}"), hidden));
    let paired = |bias: &[f32]| -> Vec<f32> {
        let rows = 0..bias.len();
        rows.map(|row| bias[unpaired(row, config.head_dim())])
            .collect()
    };
    let qkv_bias = [paired(&query), paired(&key), value].concat();
    let query_key_norms = || {
        QUERY_KEY_NORMS.map(|module| {
            let norm = norm(module);
            LayerNorm {
                weight: paired(&norm.weight),
                bias: paired(&norm.bias),
                ..norm
            }
        })
    };
    let [before_qkv, before_out, before_up, before_down] = match before {
        Some(Layer {
            qkv, out, up, down, ..
        }) => [qkv, out, up, down].map(Some),
        None => [const { None }; 4],
    };
    let mut up_bias = bias("intermediate.dense", intermediate);
    if config.is_gated() {
        up_bias = [bias(GATE, intermediate), up_bias].concat();
    }
    let up = weights(hidden, &up_bias, before_up)?;
    Ok(Layer {
        attention_norm: norm("attention.LayerNorm"),
        qkv: weights(hidden, &qkv_bias, before_qkv)?,
        query_key_norms: config.architecture.query_key_norm.then(query_key_norms),
        inv_freq: tensors.frequencies()[number].clone(),
        out: weights(hidden, &bias("attention.output.dense", hidden), before_out)?,
        ffn_norm: norm("LayerNorm"),
        up: if config.is_gated() { up.gated() } else { up },
        down: weights(intermediate, &bias("output.dense", hidden), before_down)?,
        branch_scale: config.branch_scale() as f32,
    })
}

/// Returns the jobs that pack the weights of a layer, one for each panel.
pub(super) fn jobs<'a>(
    layer: &'a mut Layer,
    tensors: &'a CheckpointTensors<'_>,
    number: usize,
) -> Vec<Job<'a>> {
    let name = layer_name(number);
    let entry = |module: &str| tensors.get(&format!("{name}.{module}.weight"));
    let projections = ["query", "key", "value"];
    let projections = projections.map(|part| entry(&format!("attention.self.{part}")));
    let head_dim = tensors.config().head_dim();
    let dense = |module: &str| vec![entry(module)];
    let mut up = dense("intermediate.dense");
    if tensors.config().is_gated() {
        up.insert(0, entry(GATE));
    }
    let matrices = [
        (&mut layer.qkv, projections.to_vec(), Some(head_dim)),
        (&mut layer.out, dense("attention.output.dense"), None),
        (&mut layer.up, up, None),
        (&mut layer.down, dense("output.dense"), None),
    ];
    let jobs = matrices
        .into_iter()
        .flat_map(|(weights, tensors, head_dim)| {
            let matrix = Arc::new(Matrix { tensors, head_dim });
            let panels = weights.panels().into_iter();
            panels.map(move |panel| Job {
                panel,
                matrix: Arc::clone(&matrix),
            })
        });
    jobs.collect()
}

/// The stored rows of a dense layer.
struct Matrix<'a> {
    /// Matrices of one shape, one below the other.
    tensors: Vec<&'a StoredTensor<'a>>,
    /// Channels of a head if the first two matrices, queries and keys, are [paired](unpaired).
    head_dim: Option<usize>,
}

impl<'a> Matrix<'a> {
    /// Returns the tensor and the row that contain the weights of an output.
    fn row(&self, output: usize) -> (&'a StoredTensor<'a>, usize) {
        let rows = self.tensors[0].size(0);
        let (number, row) = (output / rows, output % rows);
        let row = match self.head_dim {
            Some(head_dim) if number < 2 => unpaired(row, head_dim),
            _ => row,
        };
        (self.tensors[number], row)
    }
}

/// A panel to pack.
pub(super) struct Job<'a> {
    panel: Panel<'a>,
    matrix: Arc<Matrix<'a>>,
}

impl<'a> Job<'a> {
    fn rows(&self) -> impl Iterator<Item = (&'a StoredTensor<'a>, usize)> {
        self.panel.outputs().map(|output| self.matrix.row(output))
    }

    /// Returns the address in the file where the panel's first row begins.
    pub(super) fn address(&self) -> usize {
        let first = self.panel.outputs().next().unwrap_or(0);
        let (tensor, row) = self.matrix.row(first);
        let offset = row * tensor.size(1) * tensor.stored_type().bytes();
        tensor.data.extent.as_ptr().addr() + offset
    }

    /// Registers the job as a reader of its tensors.
    pub(super) fn add_reader(&self) {
        self.rows().for_each(|(tensor, _)| tensor.add_reader());
    }

    /// Packs the panel.
    pub(super) fn pack(mut self) {
        let rows = self.rows();
        let rows: Vec<_> = rows
            .map(|(tensor, row)| (tensor.stored_type(), tensor.row(row)))
            .collect();
        self.panel.pack(&rows);
        self.rows().for_each(|(tensor, _)| tensor.remove_reader());
    }
}
