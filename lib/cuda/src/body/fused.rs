//! Layers on a GPU: libtorch's matrix products and attention, and plmkit's kernels for the operations in between.

use std::ptr;
use std::sync::OnceLock;

use plmkit_contract::{MASK, Pooling};
use plmkit_esm2::Work;
use plmkit_gpu::{AddLayerNorm, BiasGelu, Element, Embed, GpuError, Kernels, Pool, Rope};
use tch::{Kind, Tensor};

use super::{Body, LayerObserver};
use crate::CudaError;
use crate::attention::Attention;
use crate::device_batch::DeviceBatch;
use crate::embedding::Embedding;
use crate::layer_norm::LayerNorm;
use crate::rope::{Frequencies, RotationCache, turns};
use crate::weights::Layer;

/// The stream on which libtorch computes by default. Only copies use others.
const STREAM: *mut std::ffi::c_void = ptr::null_mut();

/// Computes layers with libtorch and plmkit's kernels for a GPU.
#[derive(Debug)]
pub(crate) struct OnGpu {
    layers: Vec<Layer>,
    heads: usize,
    attention: Attention,
    /// The number of the GPU.
    index: usize,
    /// The kernels for the type of the model.
    kernels: Kernels,
    /// The kernels for sequences that are computed again in f32.
    in_f32: OnceLock<Result<Kernels, GpuError>>,
}

impl OnGpu {
    /// Compiles the kernels for GPU `index` and `kind`.
    pub(crate) fn compile(index: usize, kind: Kind) -> Result<Kernels, GpuError> {
        Kernels::load(index, element(kind))
    }

    /// Uses GPU `index` and its kernels.
    pub(crate) fn new(
        layers: Vec<Layer>,
        heads: usize,
        attention: Attention,
        (index, kernels): (usize, Kernels),
    ) -> Self {
        Self {
            layers,
            heads,
            attention,
            index,
            kernels,
            in_f32: OnceLock::new(),
        }
    }

    /// Returns the kernels for values of `kind`: the model's, or f32.
    fn kernels_for(&self, kind: Kind) -> Result<&Kernels, CudaError> {
        if self.kernels.element() == element(kind) {
            return Ok(&self.kernels);
        }
        let loaded = self
            .in_f32
            .get_or_init(|| Kernels::load(self.index, Element::F32));
        loaded.as_ref().map_err(|error| error.clone().into())
    }
}

impl Body for OnGpu {
    fn kernels(&self) -> String {
        "cuda".to_owned()
    }

    fn embed(&self, embedding: &Embedding, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
        let table = &embedding.table;
        let (rows, hidden) = table.size2()?;
        let tokens = batch.tokens.size1()?;
        let out = Tensor::f_empty([tokens, hidden], (Kind::Float, table.device()))?;
        let kept = batch.kept.as_ref().filter(|_| embedding.token_dropout);
        let work = Embed {
            ids: batch.tokens.data_ptr().cast(),
            table: table.data_ptr(),
            table_element: Element::F32,
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
        #[allow(unsafe_code)]
        unsafe {
            self.kernels.embed(STREAM, &work)?;
        }
        Ok(out)
    }

    fn forward(
        &self,
        x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), CudaError> {
        let mut pass = Pass {
            kernels: self.kernels_for(batch.kind)?,
            heads: self.heads as i64,
            batch,
            positions: batch.positions.f_to_kind(Kind::Int)?,
            x: x.f_contiguous()?,
        };
        batch.lap(Work::Embedding)?;
        observer.hidden(0, &|| Ok(pass.x.shallow_clone()))?;
        let mut rotations = RotationCache::default();
        let mut normalised = match self.layers[..depth].first() {
            Some(layer) => pass.normalise(None, &layer.attention_norm)?,
            None => return Ok(()),
        };
        batch.lap(Work::LayerNorm)?;
        for (number, layer) in self.layers[..depth].iter().enumerate() {
            let qkv = layer.qkv.forward(&normalised, batch.kind)?; // (rows, 3·hidden)
            batch.lap(Work::Gemm)?;
            let inv_freq = &layer.inv_freq;
            let table = rotations.get(inv_freq, || rotary_table(inv_freq, batch))?;
            let qkv = pass.rotate(&qkv, table)?; // (rows, 3, heads, head_dim)
            batch.lap(Work::Rotary)?;
            observer.attention(&|| Ok(qkv.f_to_kind(Kind::Float)?))?;
            let mixed = self.attention.forward(&qkv, batch)?; // (rows, hidden)
            batch.lap(Work::Attention)?;
            let attended = layer.out.forward(&mixed, batch.kind)?;
            batch.lap(Work::Gemm)?;
            normalised = pass.normalise(Some(&attended), &layer.ffn_norm)?;
            batch.lap(Work::LayerNorm)?;
            let wide = pass.up(&normalised, layer)?; // (rows, intermediate)
            batch.lap(Work::Gelu)?;
            let fed = layer.down.forward(&wide, batch.kind)?;
            batch.lap(Work::Gemm)?;
            // The normalisation of the next layer adds the sum.
            match self.layers[..depth].get(number + 1) {
                Some(next) => normalised = pass.normalise(Some(&fed), &next.attention_norm)?,
                None => {
                    let _ = pass.x.f_add_(&fed)?;
                }
            }
            batch.lap(Work::LayerNorm)?;
            observer.hidden(number + 1, &|| Ok(pass.x.shallow_clone()))?;
        }
        Ok(())
    }

    fn pool(&self, hidden: &Tensor, batch: &DeviceBatch, by: Pooling) -> Result<Tensor, CudaError> {
        let (tokens, width) = hidden.size2()?;
        let hidden = hidden.f_contiguous()?;
        let sequences = batch.varlen.sequences();
        let [tokens, width] = [tokens as usize, width as usize];
        let room = Pool::workspace(tokens, sequences, width)?;
        let floats = (Kind::Float, hidden.device());
        let workspace = Tensor::f_empty([room as i64], floats)?;
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
        #[allow(unsafe_code)]
        unsafe {
            self.kernels.pool(STREAM, &work)?;
        }
        Ok(out)
    }
}

/// The state of a forward pass.
struct Pass<'a> {
    kernels: &'a Kernels,
    heads: i64,
    batch: &'a DeviceBatch<'a>,
    /// `(rows)` i32
    positions: Tensor,
    /// The residual stream, `(rows, hidden)` f32.
    x: Tensor,
}

impl Pass<'_> {
    /// Adds `y`, `(rows, hidden)`, to the residual stream and normalises it: `(rows, hidden)` of the batch's kind.
    fn normalise(&mut self, y: Option<&Tensor>, norm: &LayerNorm) -> Result<Tensor, CudaError> {
        let (rows, hidden) = self.x.size2()?;
        let out = Tensor::f_empty([rows, hidden], (self.batch.kind, self.x.device()))?;
        let y = y.map(Tensor::f_contiguous).transpose()?;
        let work = AddLayerNorm {
            x: self.x.data_ptr().cast(),
            y: y.as_ref().map(|y| y.data_ptr().cast_const()),
            weight: norm.weight.data_ptr().cast(),
            bias: norm.bias.data_ptr().cast(),
            out: out.data_ptr(),
            tokens: rows as usize,
            hidden: hidden as usize,
            eps: norm.eps as f32,
        };
        // SAFETY: the tensors are contiguous, have these shapes and are on one device. libtorch reuses their memory only for later
        // work of the stream.
        #[allow(unsafe_code)]
        unsafe {
            self.kernels.add_layer_norm(STREAM, &work)?;
        }
        Ok(out)
    }

    /// Rotates queries and keys in `(rows, 3·hidden)` in place: `(rows, 3, heads, head_dim)`.
    fn rotate(&self, qkv: &Tensor, turns: &Tensor) -> Result<Tensor, CudaError> {
        let (rows, channels) = qkv.size2()?;
        let head_dim = channels / 3 / self.heads;
        let qkv = qkv.f_contiguous()?;
        let work = Rope {
            qkv: qkv.data_ptr(),
            positions: self.positions.data_ptr().cast(),
            turns: turns.data_ptr().cast(),
            tokens: rows as usize,
            heads: self.heads as usize,
            head_dim: head_dim as usize,
        };
        // SAFETY: as above; the table has a row for each position of the longest sequence.
        #[allow(unsafe_code)]
        unsafe {
            self.kernels.rope(STREAM, &work)?;
        }
        Ok(qkv.f_view([rows, 3, self.heads, head_dim])?)
    }

    /// Computes the first half of the feed-forward network, with GELU: `(rows, intermediate)`.
    fn up(&self, normalised: &Tensor, layer: &Layer) -> Result<Tensor, CudaError> {
        let up = layer.up.to_kind(self.batch.kind)?;
        let wide = normalised.f_matmul(&up.weight.f_tr()?)?.f_contiguous()?;
        self.batch.lap(Work::Gemm)?;
        let (rows, width) = wide.size2()?;
        let work = BiasGelu {
            x: wide.data_ptr(),
            bias: up.bias.data_ptr(),
            tokens: rows as usize,
            width: width as usize,
        };
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            self.kernels.bias_gelu(STREAM, &work)?;
        }
        Ok(wide)
    }
}

/// Returns cosines and sines of the positions in a batch: `(longest sequence, head_dim/2, 2)` f32.
fn rotary_table(inv_freq: &Frequencies, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
    let device = batch.positions.device();
    let positions = Tensor::f_arange(batch.longest, (Kind::Float, device))?;
    let turns = turns(&positions, inv_freq)?;
    Ok(turns.f_view_as_real()?.f_contiguous()?)
}

fn element(kind: Kind) -> Element {
    match kind {
        Kind::Half => Element::F16,
        Kind::BFloat16 => Element::Bf16,
        _ => Element::F32,
    }
}
