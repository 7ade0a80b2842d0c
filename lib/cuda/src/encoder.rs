//! The transformer layers: libtorch's matrix products and attention, and in between plmkit's kernels on a GPU, or libtorch's
//! operations.
#![allow(unsafe_code)] // queues kernels that work on pointers of tensors

use std::ptr;
use std::sync::OnceLock;

use plmkit_contract::{MASK, Pooling};
use plmkit_esm2::{Dtype, KernelKind};
use plmkit_gpu::{
    AddLayerNorm, BiasGelu, Embed, GpuError, Kernels, Pool, QuantisedActivation, Rope, RopeNorm,
    SiluGate,
};
use tch::{Kind, Tensor};

use crate::CudaError;
use crate::attention::attend;
use crate::device_batch::DeviceBatch;
use crate::embedding::Embedding;
use crate::fp8::{Fp8, Input};
use crate::layer_norm::LayerNorm;
use crate::linear::{Dense, Linear};
use crate::pooling::pool;
use crate::rope::{Frequencies, rotate, turns};

/// The stream on which libtorch computes by default. Only copies use others.
const STREAM: *mut std::ffi::c_void = ptr::null_mut();

/// The parameters of a transformer layer with pre-layer normalisation.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Applied before attention.
    pub(crate) attention_norm: LayerNorm,
    /// Queries, keys and values: `(3·hidden, hidden)`. Channels of queries and keys are paired for the rotation.
    pub(crate) qkv: Dense,
    /// Applied to the queries, and to the keys, before their rotation. Its parameters are `(2, hidden)`.
    pub(crate) query_key_norm: Option<LayerNorm>,
    /// Frequencies of the rotation; empty without one.
    pub(crate) inv_freq: Frequencies,
    /// After attention: `(hidden, hidden)`.
    pub(crate) out: Linear,
    /// Applied before the feed-forward network.
    pub(crate) ffn_norm: LayerNorm,
    /// Input of the feed-forward network: `(intermediate, hidden)`, below the rows of a gate if there is one.
    pub(crate) up: Dense,
    /// Whether the feed-forward network has a gate.
    pub(crate) gated: bool,
    /// In the place of both in fp8: their biases lack the mean inputs of `qkv` and `up`, whose products are in the biases of these.
    pub(crate) fp8_norms: Option<[LayerNorm; 2]>,
    /// Output of the feed-forward network: `(hidden, intermediate)`.
    pub(crate) down: Dense,
    /// The factor of the outputs of both branches when they are added to the residual stream, if there is one.
    pub(crate) branch_scale: Option<f64>,
}

impl Layer {
    /// Returns what is applied before attention, and before the feed-forward network.
    fn norms(&self, in_fp8: bool) -> [&LayerNorm; 2] {
        match &self.fp8_norms {
            Some(norms) if in_fp8 => norms.each_ref(),
            _ => [&self.attention_norm, &self.ffn_norm],
        }
    }
}

/// What sees the values of a forward pass as they are computed.
pub(crate) trait Observer {
    /// Receives the output of a layer, `(rows, hidden)` f32; that of layer 0 is the embedding. The next layer overwrites it.
    fn hidden(&mut self, layer: usize, x: &Tensor) -> Result<(), CudaError>;

    /// Receives queries, keys and values of the next layer, the first two rotated: `(rows, 3, heads, head_dim)`.
    fn attention(&mut self, qkv: &Tensor) -> Result<(), CudaError>;

    /// Receives the inputs of `qkv`, `up` and `down`, `(rows, in)`, of a layer, counted from 0.
    fn product(&mut self, _layer: usize, _input: &Input) -> Result<(), CudaError> {
        Ok(())
    }
}

/// The layers from the embedding to the final `LayerNorm`, and the operations in between.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) layers: Vec<Layer>,
    pub(crate) heads: usize,
    /// The compute capability of a GPU.
    pub(crate) capability: Option<(i32, i32)>,
    /// plmkit's kernels; without, libtorch's operations.
    pub(crate) gpu: Option<GpuKernels>,
}

/// plmkit's kernels on a GPU.
#[derive(Debug)]
pub(crate) struct GpuKernels {
    /// The number of the GPU.
    index: usize,
    /// The kernels for the type of the model.
    kernels: Kernels,
    /// The kernels for sequences that are computed again in f32.
    in_f32: OnceLock<Kernels>,
}

impl GpuKernels {
    /// Compiles the kernels for GPU `index` and a type.
    pub(crate) fn compile(index: usize, dtype: Dtype) -> Result<Self, GpuError> {
        Ok(Self {
            index,
            kernels: Kernels::load(index, dtype)?,
            in_f32: OnceLock::new(),
        })
    }

    /// Returns the kernels for values of `kind`: the model's, or f32.
    fn of(&self, kind: Kind) -> Result<&Kernels, CudaError> {
        if kind_of(self.kernels.element()) == kind {
            return Ok(&self.kernels);
        }
        if let Some(kernels) = self.in_f32.get() {
            return Ok(kernels);
        }
        // An error does not last: memory may have been full.
        let loaded = Kernels::load(self.index, Dtype::F32)?;
        Ok(self.in_f32.get_or_init(|| loaded))
    }
}

/// Returns libtorch's kind of weights, and of the inputs of matrix products and attention, of a model of `dtype`; of fp8, that of
/// values between products in 8 bits.
pub(crate) fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        // Everything around the integers is f32.
        Dtype::F32 | Dtype::Int8 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::Bf16 | Dtype::Fp8 => Kind::BFloat16,
    }
}

impl Encoder {
    /// Returns what computes the layers: `cuda` or `libtorch`.
    pub(crate) fn kernels(&self) -> &'static str {
        self.gpu.as_ref().map_or("libtorch", |_| "cuda")
    }

    /// Computes layer 0 of the model: `(rows, hidden)` f32.
    pub(crate) fn embed(
        &self,
        embedding: &Embedding,
        batch: &DeviceBatch,
    ) -> Result<Tensor, CudaError> {
        let Some(gpu) = &self.gpu else {
            return embedding.finish(embedding.forward(batch)?, batch);
        };
        let table = &embedding.table;
        let (rows, hidden) = table.size2()?;
        let tokens = batch.tokens.size1()?;
        let out = Tensor::f_empty([tokens, hidden], (Kind::Float, table.device()))?;
        let kept = batch.kept.as_ref().filter(|_| embedding.token_dropout);
        let work = Embed {
            ids: batch.tokens.data_ptr().cast(),
            table: table.data_ptr().cast(),
            rows: rows as usize,
            cu_seqlens: batch.offsets.data_ptr().cast(),
            kept: kept.map(|kept| kept.data_ptr().cast_const().cast()),
            masked: embedding.token_dropout.then_some(MASK),
            out: out.data_ptr().cast(),
            tokens: tokens as usize,
            sequences: batch.varlen.sequences(),
            hidden: hidden as usize,
        };
        // SAFETY: the tensors are contiguous, have these shapes and are on one device. libtorch reuses their memory only for later
        // work of the stream. The batch has checked the offsets; tokens after the last sequence count as part of it.
        unsafe {
            gpu.kernels.run(STREAM, &work)?;
        }
        embedding.finish(out, batch)
    }

    /// Applies the first `depth` layers to `x`, `(rows, hidden)` f32. Shows the observer each output, and queries, keys and values
    /// before attention, `(rows, 3, heads, head_dim)` of the batch's kind with the first two rotated.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut impl Observer,
    ) -> Result<(), CudaError> {
        let gpu = self.gpu.as_ref();
        let mut pass = Pass {
            kernels: gpu.map(|gpu| gpu.of(batch.kind)).transpose()?,
            heads: self.heads as i64,
            batch,
            positions: match gpu {
                Some(_) => batch.positions.f_to_kind(Kind::Int)?,
                // Not used, and a conversion would be a launch.
                None => batch.positions.shallow_clone(),
            },
            x: x.f_contiguous()?,
            in_fp8: (self.layers.first()).is_some_and(|layer| layer.qkv.is_fp8(batch.kind)),
        };
        drop(x);
        batch.time(KernelKind::Embedding)?;
        observer.hidden(0, &pass.x)?;
        // Those of the layer before. The layers of published checkpoints store equal frequencies.
        let mut kept: Option<(&[f32], Tensor)> = None;
        let mut normalised = match self.layers[..depth].first() {
            Some(layer) => pass.normalise(None, layer.norms(pass.in_fp8)[0], None)?,
            None => return Ok(()),
        };
        batch.time(KernelKind::LayerNorm)?;
        for (number, layer) in self.layers[..depth].iter().enumerate() {
            observer.product(number, &normalised)?;
            let qkv = layer.qkv.forward(&normalised, batch.kind)?; // (rows, 3·hidden)
            batch.time(KernelKind::Gemm)?;
            let inv_freq = &layer.inv_freq;
            let norm = layer.query_key_norm.as_ref();
            let qkv = if inv_freq.values.is_empty() {
                norm.map_or(Ok(()), |norm| normalise_in_place(&qkv, norm))?;
                pass.by_head(&qkv)? // (rows, 3, heads, head_dim)
            } else {
                let turns = match kept.take() {
                    Some((values, turns)) if *values == inv_freq.values => turns,
                    _ => pass.turns(inv_freq)?,
                };
                let qkv = pass.rotate(&qkv, &turns, norm)?;
                kept = Some((&inv_freq.values, turns));
                qkv
            };
            batch.time(KernelKind::Rotary)?;
            observer.attention(&qkv)?;
            let mixed = attend(&qkv, batch, self.capability)?; // (rows, hidden)
            batch.time(KernelKind::Attention)?;
            let attended = layer.out.forward(&mixed, batch.kind)?;
            batch.time(KernelKind::Gemm)?;
            let scale = layer.branch_scale;
            let [_, norm] = layer.norms(pass.in_fp8);
            normalised = pass.normalise(Some(&attended), norm, scale)?;
            batch.time(KernelKind::LayerNorm)?;
            observer.product(number, &normalised)?;
            let wide = pass.up(&normalised, layer)?; // (rows, intermediate)
            batch.time(KernelKind::Gelu)?;
            observer.product(number, &wide)?;
            let fed = layer.down.forward(&wide, batch.kind)?;
            batch.time(KernelKind::Gemm)?;
            // The normalisation of the next layer adds the sum.
            match self.layers[..depth].get(number + 1) {
                Some(next) => {
                    let [norm, _] = next.norms(pass.in_fp8);
                    normalised = pass.normalise(Some(&fed), norm, scale)?;
                }
                None => {
                    add(&mut pass.x, &fed, scale)?;
                }
            }
            batch.time(KernelKind::LayerNorm)?;
            observer.hidden(number + 1, &pass.x)?;
        }
        Ok(())
    }

    /// Pools hidden states, `(total_tokens, hidden)` f32, over the residues of each sequence: `(sequences, hidden)`.
    pub(crate) fn pool(
        &self,
        hidden: &Tensor,
        batch: &DeviceBatch,
        by: Pooling,
    ) -> Result<Tensor, CudaError> {
        let Some(gpu) = &self.gpu else {
            return pool(hidden, batch.varlen, by);
        };
        let (tokens, width) = hidden.size2()?;
        let hidden = hidden.f_contiguous()?;
        let sequences = batch.varlen.sequences();
        let [tokens, width] = [tokens as usize, width as usize];
        let values = Pool::workspace(tokens, sequences, width)?;
        let floats = (Kind::Float, hidden.device());
        let workspace = Tensor::f_empty([values as i64], floats)?;
        let out = Tensor::f_empty([sequences as i64, width as i64], floats)?;
        let work = Pool {
            by,
            hidden: hidden.data_ptr().cast(),
            cu_seqlens: batch.offsets.data_ptr().cast(),
            out: out.data_ptr().cast(),
            workspace: workspace.data_ptr().cast(),
            tokens,
            sequences,
            width,
        };
        // SAFETY: the tensors are contiguous, have these shapes and are on one device. libtorch reuses memory that is freed here only
        // for later work of the stream. The batch has checked the offsets.
        unsafe {
            gpu.kernels.run(STREAM, &work)?;
        }
        Ok(out)
    }
}

/// Adds `y` times `scale` to the residual stream `x`, both `(rows, hidden)`, in f32.
fn add(x: &mut Tensor, y: &Tensor, scale: Option<f64>) -> Result<(), CudaError> {
    let _ = match scale {
        None => x.f_add_(y)?,
        Some(scale) => x.f_add_(&y.f_to_kind(Kind::Float)?.f_mul_scalar(scale)?)?,
    };
    Ok(())
}

/// Normalises queries and keys in `(rows, 3·hidden)`.
fn normalise_in_place(qkv: &Tensor, norm: &LayerNorm) -> Result<(), CudaError> {
    let hidden = norm.weight.size2()?.1;
    for part in 0..2 {
        let norm = LayerNorm {
            weight: norm.weight.f_select(0, part)?,
            bias: norm.bias.f_select(0, part)?,
            eps: norm.eps,
        };
        let mut own = qkv.f_narrow(1, part * hidden, hidden)?;
        own.f_copy_(&norm.forward(&own.f_to_kind(Kind::Float)?)?)?;
    }
    Ok(())
}

/// The state of a forward pass.
struct Pass<'a> {
    /// plmkit's kernels for the batch's kind; without, libtorch's operations.
    kernels: Option<&'a Kernels>,
    heads: i64,
    batch: &'a DeviceBatch<'a>,
    /// `(rows)` i32
    positions: Tensor,
    /// The residual stream, `(rows, hidden)` f32.
    x: Tensor,
    /// Whether layers are computed in fp8.
    in_fp8: bool,
}

impl Pass<'_> {
    /// Adds `y`, `(rows, hidden)`, times `scale`, to the residual stream and normalises it: `(rows, hidden)`.
    fn normalise(
        &mut self,
        y: Option<&Tensor>,
        norm: &LayerNorm,
        scale: Option<f64>,
    ) -> Result<Input, CudaError> {
        let Some(kernels) = self.kernels else {
            if let Some(y) = y {
                add(&mut self.x, y, scale)?;
            }
            return self.input(norm.forward(&self.x)?);
        };
        let (rows, hidden) = self.x.size2()?;
        let out = self.empty([rows, hidden])?;
        let y = y.map(Tensor::f_contiguous).transpose()?;
        let work = AddLayerNorm {
            x: self.x.data_ptr().cast(),
            y: y.as_ref().map(|y| y.data_ptr().cast_const()),
            weight: norm.weight.data_ptr().cast(),
            bias: norm.bias.data_ptr().cast(),
            out: out.values().data_ptr(),
            scales: out.scales().map(|scales| scales.data_ptr().cast()),
            tokens: rows as usize,
            hidden: hidden as usize,
            eps: norm.eps as f32,
            scale: scale.unwrap_or(1.0) as f32,
        };
        // SAFETY: the tensors are contiguous, have these shapes and are on one device. libtorch reuses their memory only for later
        // work of the stream.
        unsafe {
            kernels.run(STREAM, &work)?;
        }
        Ok(out)
    }

    /// Returns memory for the input of a dense layer.
    fn empty(&self, [rows, n]: [i64; 2]) -> Result<Input, CudaError> {
        let device = self.x.device();
        Ok(if self.in_fp8 {
            Input::Fp8(Fp8::empty([rows, n], device)?)
        } else {
            Input::Plain(Tensor::f_empty([rows, n], (self.batch.kind, device))?)
        })
    }

    /// Returns `(rows, n)` as the input of a dense layer.
    fn input(&self, x: Tensor) -> Result<Input, CudaError> {
        Ok(if self.in_fp8 {
            Input::Fp8(Fp8::quantise(&x)?)
        } else {
            Input::Plain(x)
        })
    }

    /// Returns cosines and sines: of each position in a batch for plmkit's kernels, `(longest sequence, head_dim/2, 2)` f32, or of
    /// each row for libtorch's operations.
    fn turns(&self, inv_freq: &Frequencies) -> Result<Tensor, CudaError> {
        if self.kernels.is_none() {
            return turns(&self.batch.positions, inv_freq);
        }
        let device = self.batch.positions.device();
        let positions = Tensor::f_arange(self.batch.longest, (Kind::Float, device))?;
        let turns = turns(&positions, inv_freq)?;
        Ok(turns.f_view_as_real()?.f_contiguous()?)
    }

    /// Divides `(rows, 3·hidden)` by head: `(rows, 3, heads, head_dim)`.
    fn by_head(&self, qkv: &Tensor) -> Result<Tensor, CudaError> {
        let (rows, channels) = qkv.size2()?;
        let head_dim = channels / 3 / self.heads;
        Ok(qkv
            .f_contiguous()?
            .f_view([rows, 3, self.heads, head_dim])?)
    }

    /// Normalises, if `norm`, and rotates queries and keys in `(rows, 3·hidden)`: `(rows, 3, heads, head_dim)`.
    fn rotate(
        &self,
        qkv: &Tensor,
        turns: &Tensor,
        norm: Option<&LayerNorm>,
    ) -> Result<Tensor, CudaError> {
        let (rows, channels) = qkv.size2()?;
        let head_dim = channels / 3 / self.heads;
        let Some(kernels) = self.kernels else {
            let qkv = qkv.f_to_kind(Kind::Float)?;
            if let Some(norm) = norm {
                normalise_in_place(&qkv, norm)?;
            }
            let by_head = qkv.f_view([rows, 3 * self.heads, head_dim])?;
            rotate(&by_head.f_narrow(1, 0, 2 * self.heads)?, turns)?;
            let qkv = qkv.f_view([rows, 3, self.heads, head_dim])?;
            return Ok(qkv.f_to_kind(self.batch.kind)?);
        };
        let qkv = qkv.f_contiguous()?;
        let work = Rope {
            qkv: qkv.data_ptr(),
            positions: self.positions.data_ptr().cast(),
            turns: turns.data_ptr().cast(),
            tokens: rows as usize,
            heads: self.heads as usize,
            head_dim: head_dim as usize,
            norm: norm.map(|norm| RopeNorm {
                weight: norm.weight.data_ptr().cast(),
                bias: norm.bias.data_ptr().cast(),
                eps: norm.eps as f32,
            }),
        };
        // SAFETY: as above; the table has a row for each position of the longest sequence.
        unsafe {
            kernels.run(STREAM, &work)?;
        }
        Ok(qkv.f_view([rows, 3, self.heads, head_dim])?)
    }

    /// Computes the first half of the feed-forward network, with its activation: `(rows, intermediate)`.
    fn up(&self, normalised: &Input, layer: &Layer) -> Result<Input, CudaError> {
        let kind = self.batch.kind;
        // plmkit's kernels for GELU add the bias.
        let biased = layer.gated || self.kernels.is_none();
        let wide = layer.up.product(normalised, kind, biased)?;
        self.batch.time(KernelKind::Gemm)?;
        let Some(kernels) = self.kernels else {
            return self.input(activate(wide, layer.gated, self.in_fp8)?);
        };
        let wide = wide.f_contiguous()?;
        let (rows, width) = wide.size2()?;
        let bias = (!layer.gated).then(|| layer.up.bias(kind)).transpose()?;
        let [tokens, width] = [rows, if layer.gated { width / 2 } else { width }];
        let out = if self.in_fp8 || layer.gated {
            self.empty([tokens, width])?
        } else {
            Input::Plain(wide.shallow_clone())
        };
        let [tokens, width] = [tokens as usize, width as usize];
        // SAFETY: as above.
        unsafe {
            match (&out, &bias) {
                (Input::Fp8(out), _) => kernels.run(
                    STREAM,
                    &QuantisedActivation {
                        wide: wide.data_ptr().cast_const(),
                        bias: bias.as_ref().map(|bias| bias.data_ptr().cast_const()),
                        out: out.values.data_ptr(),
                        scales: out.scales.data_ptr().cast(),
                        tokens,
                        width,
                    },
                ),
                (Input::Plain(out), Some(bias)) => kernels.run(
                    STREAM,
                    &BiasGelu {
                        x: out.data_ptr(),
                        bias: bias.data_ptr(),
                        tokens,
                        width,
                    },
                ),
                (Input::Plain(out), None) => kernels.run(
                    STREAM,
                    &SiluGate {
                        wide: wide.data_ptr().cast_const(),
                        out: out.data_ptr(),
                        tokens,
                        width,
                    },
                ),
            }?;
        }
        Ok(out)
    }
}

/// Applies the activation to `(rows, intermediate)`, or the gates to `(rows, 2·intermediate)`; in f32 if `widened`.
fn activate(wide: Tensor, gated: bool, widened: bool) -> Result<Tensor, CudaError> {
    let mut wide = if widened {
        wide.f_to_kind(Kind::Float)?
    } else {
        wide
    };
    if gated {
        let width = wide.size2()?.1 / 2;
        let mut gate = wide.f_narrow(1, 0, width)?.f_silu()?;
        return Ok(gate.f_mul_(&wide.f_narrow(1, width, width)?)?);
    }
    // The exact GELU, by erf: the tanh form differs by up to 5e-4.
    Ok(wide.f_gelu_("none")?)
}
