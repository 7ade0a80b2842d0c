//! Stored tensors to the layout of the forward pass.

use plmkit_contract::Stop;
use plmkit_gpu::Kernels;
use tch::{Device, Kind, Tensor};

use super::digest::head_digest;
use super::parameters::layer_name;
use super::stored::Stored;
use crate::attention::{OneKernel, attention_on};
use crate::body::{Body, OnCpu, OnGpu, OnLibtorch, packed};
use crate::embedding::Embedding;
use crate::heads::{ContactHead, Found, Heads, LanguageModelHead};
use crate::layer::Layer;
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::rope::{Frequencies, pair_channels};
use crate::setup::Method;
use crate::weights::Weights;
use crate::{Config, EsmError, Head, Names};

/// Copies the weights to the device: the linear maps of the layers in the type of the method, all else in f32.
pub(super) fn weights(
    config: &Config,
    stored: &Stored,
    frequencies: Vec<Vec<f32>>,
    method: Method,
    stop: &Stop,
) -> Result<Weights, EsmError> {
    let assembly = Assembly {
        config,
        stored,
        device: method.device,
        kind: method.dtype.kind(),
        stop,
    };
    let words = assembly.tensor("embeddings.word_embeddings.weight")?; // (33, hidden)
    Ok(Weights {
        embedding: Embedding::new(&words, config.token_dropout)?,
        body: assembly.body(frequencies, method)?,
        final_norm: assembly.layer_norm("encoder.emb_layer_norm_after")?,
        heads: Heads {
            language_model: assembly.head(Head::LanguageModel, || {
                Ok(LanguageModelHead {
                    dense: assembly.linear("lm_head.dense")?,
                    norm: assembly.layer_norm("lm_head.layer_norm")?,
                    decoder: Linear {
                        weight: words.shallow_clone(),
                        bias: assembly.tensor("lm_head.bias")?,
                    },
                })
            })?,
            contact: assembly.head(Head::Contact, || {
                Ok(ContactHead {
                    weight: assembly
                        .tensor("contact_head.regression.weight")?
                        .f_flatten(0, -1)?,
                    bias: assembly.tensor("contact_head.regression.bias")?,
                })
            })?,
        },
    })
}

struct Assembly<'a> {
    config: &'a Config,
    stored: &'a Stored<'a>,
    device: Device,
    /// Of the linear maps in the layers.
    kind: Kind,
    stop: &'a Stop,
}

impl Assembly<'_> {
    fn tensor(&self, name: &str) -> Result<Tensor, EsmError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped);
        }
        self.stored.tensor(name, self.device)
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
            digest: head_digest(self.config, self.stored, head, self.stop)?,
        }))
    }

    fn body(&self, frequencies: Vec<Vec<f32>>, method: Method) -> Result<Box<dyn Body>, EsmError> {
        let heads = self.config.heads;
        let layers = frequencies.into_iter().enumerate();
        let layers = layers.map(|(layer, inv_freq)| self.layer(layer, inv_freq));
        if let Some(isa) = method.own {
            let multiply = method.multiply();
            // One after the other: the tensors of a layer go when it is packed.
            let layers = layers.map(|layer| packed(isa, multiply, &layer?));
            let layers = layers.collect::<Result<_, _>>()?;
            return Ok(Box::new(OnCpu::new(isa, multiply, layers, heads)));
        }
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(match (method.capability, self.kernels(method)) {
            (Some(capability), Some(kernels)) => {
                let attention = OneKernel { capability };
                Box::new(OnGpu::new(layers, heads, attention, kernels))
            }
            _ => Box::new(OnLibtorch::new(layers, heads, attention_on(method))),
        })
    }

    /// plmkit's own kernels for the GPU of a method, if they are wanted and can be had.
    fn kernels(&self, method: Method) -> Option<(usize, Kernels)> {
        let tch::Device::Cuda(index) = method.device else {
            return None;
        };
        if !method.fused {
            return None;
        }
        match OnGpu::compile(index, self.kind) {
            Ok(kernels) => Some((index, kernels)),
            Err(error) => {
                tracing::warn!(
                    "{error}; libtorch computes what plmkit's kernels would, more slowly"
                );
                None
            }
        }
    }

    fn layer(&self, layer: usize, inv_freq: Vec<f32>) -> Result<Layer, EsmError> {
        let layer = layer_name(layer);
        Ok(Layer {
            attention_norm: self.layer_norm(&format!("{layer}.attention.LayerNorm"))?,
            qkv: self
                .qkv(&format!("{layer}.attention.self"))?
                .to_kind(self.kind)?,
            inv_freq: Frequencies::new(inv_freq, self.device)?,
            out: self.narrow(&format!("{layer}.attention.output.dense"))?,
            ffn_norm: self.layer_norm(&format!("{layer}.LayerNorm"))?,
            up: self.narrow(&format!("{layer}.intermediate.dense"))?,
            down: self.narrow(&format!("{layer}.output.dense"))?,
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

    /// A linear map of a layer, in the type of the computation.
    fn narrow(&self, module: &str) -> Result<Linear, EsmError> {
        self.linear(module)?.to_kind(self.kind)
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
