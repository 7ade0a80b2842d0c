//! The model: a batch in, hidden states and pooled vectors out.

use std::path::Path;

use plmkit_contract::{Stop, VectorColumn};
use tch::Tensor;

use crate::attention::{Attention, PerSequence};
use crate::checkpoint::{self, Checkpoint};
use crate::packed::Packed;
use crate::pooling::pool;
use crate::rope::Rotation;
use crate::weights::Weights;
use crate::{Config, Device, EsmError, Varlen};

/// An ESM-2 on one device, in f32.
///
/// ```
/// # use std::path::Path;
/// use plmkit_contract::{Pool, Stop, VectorColumn};
/// use plmkit_esm2::{Device, Esm2, Varlen};
///
/// # let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-data/model-tiny"));
/// let model = Esm2::load(folder, Device::Cpu, &Stop::default())?;
/// let tokens = [0, 20, 5, 2, 0, 6, 2]; // <cls> M A <eos> <cls> G <eos>
/// let batch = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
/// let column = VectorColumn { pool: Pool::Mean, layer: 4 };
/// let vectors = model.pooled(batch, &[column], &Stop::default())?;
/// assert_eq!(vectors[0].len(), 2 * model.config().hidden);
/// # Ok::<(), plmkit_esm2::EsmError>(())
/// ```
#[derive(Debug)]
pub struct Esm2 {
    config: Config,
    digest: String,
    weights: Weights,
    attention: Box<dyn Attention>,
    device: tch::Device,
}

/// Receives layers as they appear: the layer's number and its output, `(total_tokens, hidden)` f32 on the device.
/// The tensor is overwritten by the next layer: what is to outlast the call must be copied.
pub type Visit<'a> = dyn FnMut(usize, &Tensor) -> Result<(), EsmError> + 'a;

impl Esm2 {
    /// Loads the Hugging Face checkpoint in `folder` (`config.json` and safetensors weights, one file or several)
    /// to `device`. `stop` is looked at between tensors.
    pub fn load(folder: &Path, device: Device, stop: &Stop) -> Result<Self, EsmError> {
        let device = device.open()?;
        let _no_grad = tch::no_grad_guard();
        let Checkpoint {
            config,
            digest,
            weights,
        } = checkpoint::load(folder, device, stop)?;
        Ok(Self {
            config,
            digest,
            weights,
            attention: Box::new(PerSequence),
            device,
        })
    }

    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// BLAKE3, 128 bits in hexadecimal, of everything in the checkpoint that a vector depends on.
    ///
    /// That is the configuration and the encoder's stored weights under their canonical names: the same model in one
    /// file or several, with or without a language-model head, has the same digest, and a model cast to another
    /// type has another.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The device that the model is on: `cpu`.
    pub fn device(&self) -> String {
        match self.device {
            tch::Device::Cuda(index) => format!("cuda:{index}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// The pooled vectors of every sequence: for each of `columns`, in that order, `(sequences, hidden)` f32, row by
    /// row. Layers above the last one asked for are not computed. Once `stop` is requested, which is looked at
    /// between layers, the error is [`EsmError::Stopped`].
    pub fn pooled(
        &self,
        batch: Varlen<'_>,
        columns: &[VectorColumn],
        stop: &Stop,
    ) -> Result<Vec<Vec<f32>>, EsmError> {
        let depth = columns.iter().map(|column| column.layer as usize).max();
        let mut vectors = vec![Vec::new(); columns.len()];
        let mut pool_layer = |layer: usize, hidden: &Tensor| {
            if stop.requested() {
                return Err(EsmError::Stopped);
            }
            for (column, vectors) in columns.iter().zip(&mut vectors) {
                if column.layer as usize == layer {
                    *vectors = pool(hidden, batch, column.pool)?;
                }
            }
            Ok(())
        };
        if let Some(depth) = depth {
            self.hidden_states(batch, depth, &mut pool_layer)?;
        }
        Ok(vectors)
    }

    /// Runs layers 1 to `depth` and shows `visit` the output of each, and of layer 0.
    ///
    /// As in fair-esm's `representations`, layer 0 is the scaled embedding, layer `i` the residual stream after
    /// transformer layer `i`, and the last layer of the model is taken after the final `LayerNorm`.
    pub fn hidden_states(
        &self,
        batch: Varlen<'_>,
        depth: usize,
        visit: &mut Visit,
    ) -> Result<(), EsmError> {
        let layers = self.config.layers;
        if depth > layers {
            return Err(EsmError::NoSuchLayer {
                layer: depth,
                layers,
            });
        }
        let _no_grad = tch::no_grad_guard();
        let batch = Packed::new(batch, self.device)?;
        let mut x = self.weights.embedding.forward(&batch)?; // (total_tokens, hidden)
        visit(0, &x)?;
        let mut rotation = Rotation::new(&batch.positions, &self.weights.layers[0].inv_freq)?;
        for (layer, number) in self.weights.layers[..depth].iter().zip(1..) {
            // Every layer has the same frequencies in the published checkpoints, but each stores its own.
            if !rotation.is_of(&layer.inv_freq) {
                rotation = Rotation::new(&batch.positions, &layer.inv_freq)?;
            }
            layer.forward(
                &mut x,
                self.config.heads,
                &rotation,
                self.attention.as_ref(),
                &batch,
            )?;
            if number < layers {
                visit(number, &x)?;
            } else {
                visit(number, &self.weights.final_norm.forward(&x)?)?;
            }
        }
        Ok(())
    }
}
