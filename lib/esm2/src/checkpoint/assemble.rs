//! Stored tensors to the layout of the forward pass.

use std::time::{Duration, Instant};

use plmkit_contract::Stop;
use plmkit_gpu::Kernels;
use tch::{Device, Kind, Tensor};

use super::digest::DigestInput;
use super::parameters::layer_name;
use super::stored::Stored;
use super::work::hash;
use crate::attention::{OneKernel, attention_on};
use crate::body::{Body, OnGpu, OnLibtorch};
use crate::compute_options::ComputePlan;
use crate::embedding::Embedding;
use crate::heads::{ContactHead, Found, Heads, LanguageModelHead};
use crate::layer::Layer;
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::rope::{Frequencies, pair_channels};
use crate::weights::Weights;
use crate::{EsmError, Head, ModelConfig, Names};

/// Copies weights to a device: the linear maps of the layers in the type of the method, all else in f32.
pub(super) struct Assembly<'a> {
    config: &'a ModelConfig,
    stored: &'a Stored<'a>,
    device: Device,
    stop: &'a Stop,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(
        config: &'a ModelConfig,
        stored: &'a Stored<'a>,
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

    /// All weights, given the layers.
    pub(super) fn weights(&self, body: Box<dyn Body>) -> Result<Weights, EsmError> {
        let words = self.tensor("embeddings.word_embeddings.weight")?; // (33, hidden)
        Ok(Weights {
            embedding: Embedding::new(&words, self.config.token_dropout)?,
            body,
            final_norm: self.layer_norm("encoder.emb_layer_norm_after")?,
            heads: Heads {
                language_model: self.head(Head::LanguageModel, || {
                    Ok(LanguageModelHead {
                        dense: self.linear("lm_head.dense")?,
                        norm: self.layer_norm("lm_head.layer_norm")?,
                        decoder: Linear {
                            weight: words.shallow_clone(),
                            bias: self.tensor("lm_head.bias")?,
                        },
                    })
                })?,
                contact: self.head(Head::Contact, || {
                    Ok(ContactHead {
                        weight: self
                            .tensor("contact_head.regression.weight")?
                            .f_flatten(0, -1)?,
                        bias: self.tensor("contact_head.regression.bias")?,
                    })
                })?,
            },
        })
    }

    fn tensor(&self, name: &str) -> Result<Tensor, EsmError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped);
        }
        self.stored.entry(name).tensor(self.device)
    }

    /// What `build` makes of a head that is there whole, or what is missing of it.
    fn head<T>(
        &self,
        head: Head,
        build: impl FnOnce() -> Result<T, EsmError>,
    ) -> Result<Result<Found<T>, Names>, EsmError> {
        let missing = self.stored.missing(self.config, head);
        if !missing.is_empty() {
            return Ok(Err(Names(missing)));
        }
        Ok(Ok(Found {
            head: build()?,
            digest: hash(
                &DigestInput::for_head(self.config, self.stored, head),
                self.stop,
            )?,
        }))
    }

    /// Layers of libtorch's matrix products, and the time in which kernels for what lies between were compiled.
    pub(super) fn body(
        &self,
        frequencies: Vec<Vec<f32>>,
        method: ComputePlan,
    ) -> Result<(Box<dyn Body>, Option<Duration>), EsmError> {
        let (heads, kind) = (self.config.heads, method.dtype.kind());
        let layers = frequencies.into_iter().enumerate();
        let layers = layers.map(|(layer, inv_freq)| self.layer(layer, inv_freq, kind));
        let layers = layers.collect::<Result<_, _>>()?;
        let started = Instant::now();
        if let (Some(capability), Some(kernels)) = (method.capability, kernels(method)) {
            let attention = OneKernel { capability };
            let body = OnGpu::new(layers, heads, attention, kernels);
            return Ok((Box::new(body), Some(started.elapsed())));
        }
        let body = OnLibtorch::new(layers, heads, attention_on(method));
        Ok((Box::new(body), None))
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

/// plmkit's own kernels for the GPU of a method, if they are wanted and can be had.
fn kernels(method: ComputePlan) -> Option<(usize, Kernels)> {
    let tch::Device::Cuda(index) = method.device else {
        return None;
    };
    if !method.fused {
        return None;
    }
    match OnGpu::compile(index, method.dtype.kind()) {
        Ok(kernels) => Some((index, kernels)),
        Err(error) => {
            tracing::warn!("{error}; libtorch computes what plmkit's kernels would, more slowly");
            None
        }
    }
}
