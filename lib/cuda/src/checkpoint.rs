//! Copies stored tensors to a device, in the layout of the forward pass.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use plmkit_contract::Dtype;
use plmkit_esm2::cuda::{Note, Opening};
use plmkit_esm2::{
    BIAS, CheckpointTensors, Device as Requested, EMBEDDING_NORM, EsmError, Head, POSITIONS,
    Positions, QKV, QUERY_KEY_NORMS, StoredTensor, WORDS, feed_forward_inputs, layer_name,
};
use plmkit_kit::Stop;
use tch::{Device, Kind, Tensor};

use crate::CudaError;
use crate::embedding::Embedding;
use crate::encoder::{Encoder, GpuKernels, Layer, kind_of};
use crate::fp8::compensate;
use crate::heads::{ContactHead, LanguageModelHead};
use crate::layer_norm::LayerNorm;
use crate::libtorch::set_threads;
use crate::linear::{Dense, Linear};
use crate::model::TorchModel;
use crate::rope::{Frequencies, pair_channels};
use crate::shim::cuda_memory;
use crate::transfer::Transfer;

/// Copies a model to the device of `opening`. Returns it with the time to compile kernels for the operations between libtorch's, and
/// log lines.
pub(crate) fn load(
    tensors: &CheckpointTensors,
    opening: &Opening,
    stop: &Stop,
) -> Result<(TorchModel, Option<Duration>, Vec<Note>), CudaError> {
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
    let layers = (0..tensors.config().layers).map(|layer| copying.layer(layer, opening.dtype));
    let layers = layers.collect::<Result<_, _>>()?;
    let started = Instant::now();
    let mut notes = tensors.notes();
    let kernels = compile(opening).unwrap_or_else(|note| {
        notes.push(note);
        None
    });
    let compiled = kernels.as_ref().map(|_| started.elapsed());
    let encoder = Encoder {
        layers,
        heads: tensors.config().heads,
        capability: gpu.map(|gpu| gpu.capability),
        gpu: kernels,
    };
    let mut model = copying.model(encoder, opening)?;
    if opening.dtype == Dtype::Fp8 {
        set_threads(model.threads);
        compensate(&mut model)?;
    }
    Ok((model, compiled, notes))
}

/// Checks that the weights fit in the device memory if nothing else uses it.
fn check_memory(tensors: &CheckpointTensors, opening: &Opening) -> Result<(), CudaError> {
    let Some(gpu) = &opening.gpu else {
        return Ok(());
    };
    let total = cuda_memory(gpu.index)?;
    // A weight is a multiplication and an addition.
    let values = tensors.config().shape().flops_per_token() as usize / 2;
    // Of fp8, its copy in f16 as well.
    let in_8_bits = usize::from(opening.dtype == Dtype::Fp8);
    let needed = values * (kind_of(opening.dtype).elt_size_in_bytes() + in_8_bits);
    if needed < total {
        return Ok(());
    }
    let (device, total, needed) = (Requested::Cuda(gpu.index), total >> 20, needed >> 20);
    Err(EsmError::unavailable(format!(
        "device '{device}' has {total} MiB of memory; expected more than {needed} MiB, the size of the model"
    ))
    .into())
}

/// Copies weights to a device: the dense layers of the encoder in the type of the model, everything else in f32.
struct Copying<'a> {
    tensors: &'a CheckpointTensors,
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

    fn layer(&self, layer: usize, dtype: Dtype) -> Result<Layer, CudaError> {
        let inv_freq = Frequencies::new(self.tensors.frequencies(layer), self.device)?;
        let (config, layer) = (self.tensors.config(), layer_name(layer));
        let dense = |modules: &[&str], paired: usize| {
            let modules = modules.iter().map(|module| format!("{layer}.{module}"));
            self.dense(&modules.collect::<Vec<_>>(), paired)
        };
        let kind = kind_of(dtype);
        let quantised = |linear: Linear| match dtype {
            Dtype::Fp8 => Dense::fp8(&linear),
            _ => Dense::plain(&linear, kind),
        };
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
            fp8_norms: None,
            qkv: quantised(dense(&QKV, 2)?)?,
            query_key_norm: (config.architecture.query_key_norm)
                .then(query_key_norm)
                .transpose()?,
            inv_freq,
            out: dense(&["attention.output.dense"], 0)?.to_kind(kind)?,
            ffn_norm: self.layer_norm(&format!("{layer}.LayerNorm"))?,
            up: quantised(dense(feed_forward_inputs(config), 0)?)?,
            gated: config.is_gated(),
            down: quantised(dense(&["output.dense"], 0)?)?,
            branch_scale: (config.architecture.branch_depth).map(|_| config.branch_scale()),
        })
    }

    /// Returns dense layers, one below the other. The channels of the first `paired` are paired for the rotation.
    fn dense(&self, modules: &[String], paired: usize) -> Result<Linear, CudaError> {
        let heads = self.tensors.config().heads;
        let stack = |what: &str| -> Result<Tensor, CudaError> {
            let parts = modules.iter().enumerate().map(|(number, module)| {
                let part = self.tensor(&format!("{module}.{what}"))?;
                if number < paired {
                    pair_channels(&part, heads)
                } else {
                    Ok(part)
                }
            });
            let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
            Ok(match &parts[..] {
                [_] => parts.remove(0),
                parts => Tensor::f_cat(parts, 0)?,
            })
        };
        let bias = self.tensors.find(&format!("{}.bias", modules[0])).is_some();
        Ok(Linear {
            weight: stack("weight")?,                       // (out of all, in)
            bias: bias.then(|| stack("bias")).transpose()?, // (out of all)
        })
    }

    fn linear(&self, module: &str) -> Result<Linear, CudaError> {
        self.dense(&[module.to_owned()], 0)
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
fn copy(stored: &StoredTensor, device: Device) -> Result<Tensor, CudaError> {
    let shape: Vec<i64> = stored.shape().iter().map(|&size| size as i64).collect();
    let bytes = upload(&stored.bytes(), device)?;
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

/// Compiles plmkit's kernels for a GPU; `None` on a CPU, or if libtorch's are asked for. If they do not compile, returns a warning.
fn compile(opening: &Opening) -> Result<Option<GpuKernels>, Note> {
    let Some(gpu) = opening.gpu.as_ref().filter(|_| opening.fused) else {
        return Ok(None);
    };
    let compiled = GpuKernels::compile(gpu.index, opening.dtype);
    compiled.map(Some).map_err(|error| Note {
        warning: true,
        text: format!("{error}; libtorch computes what plmkit's kernels would, more slowly"),
    })
}
