//! Copies stored tensors to a device, in the layout of the forward pass.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use plmkit_contract::Stop;
use plmkit_esm2::cuda::Opening;
use plmkit_esm2::{
    BIAS, CheckpointTensors, Device as Requested, DeviceError, EMBEDDING_NORM, EsmError, GATE,
    Head, POSITIONS, Positions, QUERY_KEY_NORMS, StoredTensor, WORDS, layer_name,
};
use tch::{Device, Kind, Tensor};

use crate::CudaError;
use crate::attention::Attention;
use crate::embedding::Embedding;
use crate::encoder::{Encoder, GpuKernels, Layer, kind_of};
use crate::heads::{ContactHead, LanguageModelHead};
use crate::layer_norm::LayerNorm;
use crate::libtorch::set_threads;
use crate::linear::Linear;
use crate::model::TorchModel;
use crate::rope::{Frequencies, pair_channels};
use crate::shim::cuda_memory;
use crate::transfer::Transfer;

/// Copies a model to the device of `opening`. Returns it with the time to compile kernels for the operations between libtorch's.
pub(crate) fn load(
    tensors: &CheckpointTensors<'_>,
    opening: &Opening,
    stop: &Stop,
) -> Result<(TorchModel, Option<Duration>), CudaError> {
    // Loading only copies, and libtorch would keep the threads.
    set_threads(NonZeroUsize::MIN);
    let _no_grad = tch::no_grad_guard();
    check_memory(tensors, opening)?;
    let gpu = opening.gpu.as_ref();
    let copying = Copying {
        tensors,
        device: gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.index)),
        stop,
    };
    let frequencies = tensors.frequencies().iter().enumerate();
    let kind = kind_of(opening.dtype);
    let layers = frequencies.map(|(layer, inv_freq)| copying.layer(layer, inv_freq, kind));
    let layers = layers.collect::<Result<_, _>>()?;
    let started = Instant::now();
    let kernels = compile(opening);
    let compiled = kernels.as_ref().map(|_| started.elapsed());
    let encoder = Encoder {
        layers,
        heads: tensors.config().heads,
        attention: Attention::new(gpu.map(|gpu| gpu.capability)),
        gpu: kernels,
    };
    Ok((copying.model(encoder, opening)?, compiled))
}

/// Checks that the weights fit in the device memory if nothing else uses it.
fn check_memory(tensors: &CheckpointTensors<'_>, opening: &Opening) -> Result<(), CudaError> {
    let Some(gpu) = &opening.gpu else {
        return Ok(());
    };
    let total = cuda_memory(gpu.index)?;
    // A weight is a multiplication and an addition.
    let values = tensors.config().shape().flops_per_token() as usize / 2;
    let needed = values * kind_of(opening.dtype).elt_size_in_bytes();
    if needed < total {
        return Ok(());
    }
    let device = Requested::Cuda(gpu.index);
    Err(EsmError::from(DeviceError::TooSmall {
        device,
        total,
        needed,
    })
    .into())
}

/// Copies weights to a device: the dense layers of the encoder in the type of the model, everything else in f32.
struct Copying<'a> {
    tensors: &'a CheckpointTensors<'a>,
    device: Device,
    stop: &'a Stop,
}

impl Copying<'_> {
    /// Returns the model of these layers, with the heads that the checkpoint has.
    fn model(&self, encoder: Encoder, opening: &Opening) -> Result<TorchModel, CudaError> {
        let config = self.tensors.config();
        let of = &config.architecture;
        let words = self.tensor(WORDS)?; // (vocabulary, hidden)
        let positions = match of.positions {
            Positions::Learned { first, longest } => {
                let table = self.tensor(POSITIONS)?;
                Some(table.f_narrow(0, first as i64, longest as i64)?)
            }
            Positions::StoredRotary | Positions::ComputedRotary => None,
        };
        let norm = || self.layer_norm(EMBEDDING_NORM);
        let language_model = || -> Result<_, CudaError> {
            Ok(LanguageModelHead {
                dense: self.linear("lm_head.dense")?,
                norm: self.layer_norm("lm_head.layer_norm")?,
                decoder: Linear {
                    weight: match self.tensors.decoder() {
                        WORDS => words.shallow_clone(),
                        own => self.tensor(own)?,
                    },
                    bias: Some(self.tensor(BIAS)?),
                },
            })
        };
        let contact = || -> Result<_, CudaError> {
            let weight = self.tensor("contact_head.regression.weight")?;
            Ok(ContactHead {
                weight: weight.f_flatten(0, -1)?,
                bias: self.tensor("contact_head.regression.bias")?,
            })
        };
        let has = |head| self.tensors.has(head);
        Ok(TorchModel {
            embedding: Embedding {
                positions,
                norm: of.embedding_norm.then(norm).transpose()?,
                ..Embedding::new(&words, config.token_dropout)?
            },
            encoder,
            final_norm: self.layer_norm("encoder.emb_layer_norm_after")?,
            language_model: has(Head::LanguageModel).then(language_model).transpose()?,
            contact: has(Head::Contact).then(contact).transpose()?,
            widths: config.widths(),
            transfer: Transfer::new(self.device, opening.profile)?,
            threads: opening.threads,
            stop: self.stop.clone(),
        })
    }

    fn tensor(&self, name: &str) -> Result<Tensor, CudaError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped.into());
        }
        copy(self.tensors.get(name), self.device)
    }

    fn layer(&self, layer: usize, inv_freq: &[f32], kind: Kind) -> Result<Layer, CudaError> {
        let narrow = |module: &str| self.linear(module)?.to_kind(kind);
        let (config, layer) = (self.tensors.config(), layer_name(layer));
        let mut up = self.linear(&format!("{layer}.intermediate.dense"))?;
        if config.is_gated() {
            let gate = self.linear(&format!("{layer}.{GATE}"))?;
            up = Linear {
                weight: Tensor::f_cat(&[gate.weight, up.weight], 0)?,
                bias: (gate.bias.zip(up.bias))
                    .map(|(gate, up)| Tensor::f_cat(&[gate, up], 0))
                    .transpose()?,
            };
        }
        let query_key_norm = || -> Result<LayerNorm, CudaError> {
            let [query, key] =
                QUERY_KEY_NORMS.map(|module| self.layer_norm(&format!("{layer}.{module}")));
            let (query, key) = (query?, key?);
            let both = |of: [&Tensor; 2]| -> Result<Tensor, CudaError> {
                let [query, key] = of.map(|of| pair_channels(of, config.heads));
                Ok(Tensor::f_stack(&[query?, key?], 0)?)
            };
            Ok(LayerNorm {
                weight: both([&query.weight, &key.weight])?,
                bias: both([&query.bias, &key.bias])?,
                eps: query.eps,
            })
        };
        Ok(Layer {
            attention_norm: self.layer_norm(&format!("{layer}.attention.LayerNorm"))?,
            qkv: self
                .qkv(&format!("{layer}.attention.self"))?
                .to_kind(kind)?,
            query_key_norm: (config.architecture.query_key_norm)
                .then(query_key_norm)
                .transpose()?,
            inv_freq: Frequencies::new(inv_freq.to_vec(), self.device)?,
            out: narrow(&format!("{layer}.attention.output.dense"))?,
            ffn_norm: self.layer_norm(&format!("{layer}.LayerNorm"))?,
            up: up.to_kind(kind)?,
            gated: config.is_gated(),
            down: narrow(&format!("{layer}.output.dense"))?,
            branch_scale: (config.architecture.branch_depth).map(|_| config.branch_scale()),
        })
    }

    fn qkv(&self, module: &str) -> Result<Linear, CudaError> {
        let stack = |what: &str| -> Result<Tensor, CudaError> {
            let query = self.tensor(&format!("{module}.query.{what}"))?;
            let key = self.tensor(&format!("{module}.key.{what}"))?;
            let value = self.tensor(&format!("{module}.value.{what}"))?;
            let heads = self.tensors.config().heads;
            Ok(Tensor::f_cat(
                &[
                    pair_channels(&query, heads)?,
                    pair_channels(&key, heads)?,
                    value,
                ],
                0,
            )?)
        };
        let bias = self.tensors.config().architecture.dense_bias;
        Ok(Linear {
            weight: stack("weight")?,                       // (3·hidden, hidden)
            bias: bias.then(|| stack("bias")).transpose()?, // (3·hidden)
        })
    }

    fn linear(&self, module: &str) -> Result<Linear, CudaError> {
        let bias = format!("{module}.bias");
        let stored = self.tensors.find(&bias).is_some();
        Ok(Linear {
            weight: self.tensor(&format!("{module}.weight"))?,
            bias: stored.then(|| self.tensor(&bias)).transpose()?,
        })
    }

    fn layer_norm(&self, module: &str) -> Result<LayerNorm, CudaError> {
        let Linear { weight, bias } = self.linear(module)?;
        Ok(LayerNorm {
            bias: match bias {
                Some(bias) => bias,
                None => weight.f_zeros_like()?,
            },
            weight,
            eps: self.tensors.config().layer_norm_eps,
        })
    }
}

/// Copies a stored tensor to `device` in f32.
fn copy(stored: &StoredTensor<'_>, device: Device) -> Result<Tensor, CudaError> {
    let shape: Vec<i64> = stored.shape().iter().map(|&size| size as i64).collect();
    let bytes = upload(stored.bytes(), device)?;
    stored.release();
    Ok(bytes
        .f_view_dtype(kind_of(stored.stored_type()))?
        .f_view(shape.as_slice())?
        .f_to_kind(Kind::Float)?)
}

/// Copies bytes to a device, `(bytes)` u8, without a second copy on the host.
#[allow(unsafe_code)]
fn upload(bytes: &[u8], device: Device) -> Result<Tensor, CudaError> {
    let size = [bytes.len() as i64];
    let mut copy = Tensor::f_empty(size, (Kind::Uint8, device))?;
    // SAFETY: the tensor has as many bytes as the slice and is dropped before it. A copy from memory that is not page-locked
    // has read the source when it returns.
    let source =
        unsafe { Tensor::f_from_blob(bytes.as_ptr(), &size, &[1], Kind::Uint8, Device::Cpu)? };
    copy.f_copy_(&source)?;
    Ok(copy)
}

/// Compiles plmkit's kernels for a GPU; `None` on a CPU, if libtorch's are asked for, or after a warning if they do not compile.
fn compile(opening: &Opening) -> Option<GpuKernels> {
    let index = opening.gpu.as_ref().filter(|_| opening.fused)?.index;
    let compiled = GpuKernels::compile(index, opening.dtype);
    compiled
        .inspect_err(|error| {
            tracing::warn!("{error}; libtorch computes what plmkit's kernels would, more slowly");
        })
        .ok()
}
