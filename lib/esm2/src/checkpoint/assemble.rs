//! Copies stored tensors to a device, in the layout of the forward pass.

use std::time::{Duration, Instant};

use plmkit_contract::Stop;
use plmkit_gpu::Kernels;
use tch::{Device, Kind, Tensor};

use super::parameters::{BIAS, DECODER, WORDS, layer_name};
use super::stored::StoredTensors;
use crate::attention::Attention;
use crate::body::{Body, OnGpu, OnLibtorch};
use crate::compute_options::ComputePlan;
use crate::embedding::Embedding;
use crate::heads::{ContactHead, HeadDigests, LanguageModelHead};
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::rope::{Frequencies, pair_channels};
use crate::weights::{Layer, Weights};
use crate::{EsmError, ModelConfig};

/// Copies weights to a device: the dense layers of the encoder in the type of the plan, everything else in f32.
pub(super) struct Assembly<'a> {
    config: &'a ModelConfig,
    stored: &'a StoredTensors<'a>,
    device: Device,
    stop: &'a Stop,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(
        config: &'a ModelConfig,
        stored: &'a StoredTensors<'a>,
        device: Device,
        stop: &'a Stop,
    ) -> Self {
        Self {
            config,
            stored,
            device,
            stop,
        }
    }

    /// Returns all weights, given the layers, with the heads that have a digest.
    pub(super) fn weights(
        &self,
        body: Box<dyn Body>,
        heads: &HeadDigests,
    ) -> Result<Weights, EsmError> {
        let words = self.tensor(WORDS)?; // (33, hidden)
        let language_model = || -> Result<_, EsmError> {
            Ok(LanguageModelHead {
                dense: self.linear("lm_head.dense")?,
                norm: self.layer_norm("lm_head.layer_norm")?,
                decoder: Linear {
                    weight: if self.stored.has_own_decoder() {
                        self.tensor(DECODER)?
                    } else {
                        words.shallow_clone()
                    },
                    bias: self.tensor(BIAS)?,
                },
            })
        };
        let contact = || -> Result<_, EsmError> {
            let weight = self.tensor("contact_head.regression.weight")?;
            Ok(ContactHead {
                weight: weight.f_flatten(0, -1)?,
                bias: self.tensor("contact_head.regression.bias")?,
            })
        };
        Ok(Weights {
            embedding: Embedding::new(&words, self.config.token_dropout)?,
            body,
            final_norm: self.layer_norm("encoder.emb_layer_norm_after")?,
            language_model: heads
                .language_model
                .is_ok()
                .then(language_model)
                .transpose()?,
            contact: heads.contact.is_ok().then(contact).transpose()?,
        })
    }

    fn tensor(&self, name: &str) -> Result<Tensor, EsmError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped);
        }
        self.stored.get(name).tensor(self.device)
    }

    /// Returns layers for libtorch's matrix products, and the time to compile kernels for the operations in between.
    pub(super) fn body(
        &self,
        frequencies: Vec<Vec<f32>>,
        plan: ComputePlan,
    ) -> Result<(Box<dyn Body>, Option<Duration>), EsmError> {
        let (heads, kind) = (self.config.heads, plan.dtype.kind());
        let layers = frequencies.into_iter().enumerate();
        let layers = layers.map(|(layer, inv_freq)| self.layer(layer, inv_freq, kind));
        let layers = layers.collect::<Result<_, _>>()?;
        let attention = Attention::new(plan.capability);
        let started = Instant::now();
        if let Some(kernels) = compile(plan) {
            let body = OnGpu::new(layers, heads, attention, kernels);
            return Ok((Box::new(body), Some(started.elapsed())));
        }
        Ok((Box::new(OnLibtorch::new(layers, heads, attention)), None))
    }

    fn layer(&self, layer: usize, inv_freq: Vec<f32>, kind: Kind) -> Result<Layer, EsmError> {
        let narrow = |module: &str| self.linear(module)?.to_kind(kind);
        let layer = layer_name(layer);
        Ok(Layer {
            attention_norm: self.layer_norm(&format!("{layer}.attention.LayerNorm"))?,
            qkv: self
                .qkv(&format!("{layer}.attention.self"))?
                .to_kind(kind)?,
            inv_freq: Frequencies::new(inv_freq, self.device)?,
            out: narrow(&format!("{layer}.attention.output.dense"))?,
            ffn_norm: self.layer_norm(&format!("{layer}.LayerNorm"))?,
            up: narrow(&format!("{layer}.intermediate.dense"))?,
            down: narrow(&format!("{layer}.output.dense"))?,
        })
    }

    fn qkv(&self, module: &str) -> Result<Linear, EsmError> {
        let stack = |what: &str| -> Result<Tensor, EsmError> {
            let query = self.tensor(&format!("{module}.query.{what}"))?;
            let key = self.tensor(&format!("{module}.key.{what}"))?;
            let value = self.tensor(&format!("{module}.value.{what}"))?;
            let heads = self.config.heads;
            Ok(Tensor::f_cat(
                &[
                    pair_channels(&query, heads)?,
                    pair_channels(&key, heads)?,
                    value,
                ],
                0,
            )?)
        };
        Ok(Linear {
            weight: stack("weight")?, // (3·hidden, hidden)
            bias: stack("bias")?,     // (3·hidden)
        })
    }

    fn linear(&self, module: &str) -> Result<Linear, EsmError> {
        Ok(Linear {
            weight: self.tensor(&format!("{module}.weight"))?,
            bias: self.tensor(&format!("{module}.bias"))?,
        })
    }

    fn layer_norm(&self, module: &str) -> Result<LayerNorm, EsmError> {
        Ok(LayerNorm {
            weight: self.tensor(&format!("{module}.weight"))?,
            bias: self.tensor(&format!("{module}.bias"))?,
            eps: self.config.layer_norm_eps,
        })
    }
}

/// Compiles plmkit's kernels for the GPU of a plan. Returns its number and the kernels; `None` if the plan has no kernels, or
/// after a warning if they do not compile.
fn compile(plan: ComputePlan) -> Option<(usize, Kernels)> {
    let Device::Cuda(index) = plan.device else {
        return None;
    };
    if !plan.fused {
        return None;
    }
    match OnGpu::compile(index, plan.dtype.kind()) {
        Ok(kernels) => Some((index, kernels)),
        Err(error) => {
            tracing::warn!("{error}; libtorch computes what plmkit's kernels would, more slowly");
            None
        }
    }
}
