//! The model: a batch in; hidden states, vectors, logits and contacts out.

use std::path::{Path, PathBuf};

use plmkit_contract::{Column, Stop};
use tch::Tensor;

use crate::attention::{Attention, PerSequence};
use crate::checkpoint::{self, Checkpoint};
use crate::collect::residues;
use crate::heads::Contacts;
use crate::packed::Packed;
use crate::pooling::pool;
use crate::rope::Rotation;
use crate::weights::Weights;
use crate::{Config, Device, Dtype, EsmError, Head, Varlen};

/// An ESM-2 on one device.
///
/// ```
/// # use std::path::Path;
/// use plmkit_contract::{Column, Stop};
/// use plmkit_esm2::{Device, Dtype, Esm2, Varlen};
///
/// # let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-data/model-tiny"));
/// let model = Esm2::load(folder, Device::Cpu, Dtype::F32, &Stop::default())?;
/// let tokens = [0, 20, 5, 2, 0, 6, 2]; // <cls> M A <eos> <cls> G <eos>
/// let batch = Varlen::new(&tokens, &[0, 4, 7]).unwrap();
/// let columns = ["mean_4", "contacts"].map(|name| name.parse::<Column>().unwrap());
/// let values = model.embed(batch, &columns, model.dtype(), &Stop::default())?;
/// assert_eq!(values[0].len(), 2 * model.config().hidden);
/// assert_eq!(values[1].len(), 2 * 2 + 1);
/// # Ok::<(), plmkit_esm2::EsmError>(())
/// ```
#[derive(Debug)]
pub struct Esm2 {
    /// Where it was loaded from, for messages.
    source: PathBuf,
    config: Config,
    digest: String,
    weights: Weights,
    attention: Box<dyn Attention>,
    device: tch::Device,
    dtype: Dtype,
}

/// Receives layers as they appear: the layer's number and its output, `(total_tokens, hidden)` f32 on the device.
/// The tensor is overwritten by the next layer: what is to outlast the call must be copied.
pub type Visit<'a> = dyn FnMut(usize, &Tensor) -> Result<(), EsmError> + 'a;

impl Esm2 {
    /// Loads the Hugging Face checkpoint in the folder `model` (`config.json`, and weights as safetensors or as PyTorch
    /// saves them, one file or several), or in the weight file `model` with its `config.json` beside it, to `device`,
    /// to compute in `dtype`. `stop` is looked at between tensors.
    pub fn load(model: &Path, device: Device, dtype: Dtype, stop: &Stop) -> Result<Self, EsmError> {
        let device = device.open()?;
        let _no_grad = tch::no_grad_guard();
        let Checkpoint {
            config,
            digest,
            weights,
        } = checkpoint::load(model, device, dtype, stop)?;
        Ok(Self {
            source: model.to_owned(),
            config,
            digest,
            weights,
            attention: Box::new(PerSequence),
            device,
            dtype,
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

    /// The type in which the model computes best: that of its weights in memory.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The heads that `columns` are computed with, each once.
    pub fn heads_of(&self, columns: &[Column]) -> Vec<Head> {
        let mut heads: Vec<Head> = columns
            .iter()
            .filter_map(|&column| Head::of(column))
            .collect();
        heads.dedup();
        heads
    }

    /// BLAKE3, 128 bits in hexadecimal, of the stored weights of a head; [`EsmError::NoHead`] where there is none.
    pub fn head_digest(&self, head: Head) -> Result<&str, EsmError> {
        let digest = self.weights.heads.digest(head);
        digest.map_err(|missing| EsmError::NoHead {
            model: self.source.clone(),
            head,
            missing: missing.clone(),
        })
    }

    /// What `columns` hold of every sequence: for each column, in that order, the values of all sequences one after
    /// the other, as many as [`Column::values`] says, in f32. Layers above the last one asked for are not computed.
    /// Where `dtype` is not the model's, weights are converted layer by layer, which is slow.
    /// Once `stop` is requested, which is looked at between layers, the error is [`EsmError::Stopped`].
    pub fn embed(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        dtype: Dtype,
        stop: &Stop,
    ) -> Result<Vec<Vec<f32>>, EsmError> {
        for head in self.heads_of(columns) {
            self.head_digest(head)?;
        }
        let layers = self.config.layers;
        let depth = |column: &Column| column.layer().map_or(layers, |layer| layer as usize);
        let Some(depth) = columns.iter().map(depth).max() else {
            return Ok(Vec::new());
        };
        let heads = &self.weights.heads;
        let wanted = columns.contains(&Column::Contacts);
        let mut contacts = match &heads.contact {
            Ok(found) if wanted => Some(Contacts::new(&found.head, batch, self.device)?),
            _ => None,
        };
        let mut values = vec![Vec::new(); columns.len()];
        let mut collect = |layer: usize, hidden: &Tensor| {
            if stop.requested() {
                return Err(EsmError::Stopped);
            }
            for (&column, values) in columns.iter().zip(&mut values) {
                let here = column.layer().map_or(layers, |layer| layer as usize) == layer;
                match (column, &heads.language_model) {
                    (Column::Pooled(column), _) if here => {
                        *values = pool(hidden, batch, column.pool)?;
                    }
                    (Column::Residues(_), _) if here => *values = residues(hidden, batch)?,
                    (Column::Logits, Ok(found)) if here => {
                        *values = residues(&found.head.forward(hidden)?, batch)?;
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        self.forward(batch, depth, dtype, contacts.as_mut(), &mut collect)?;
        if let (Some(contacts), Some(place)) = (
            contacts,
            columns
                .iter()
                .position(|&column| column == Column::Contacts),
        ) {
            values[place] = contacts.finish()?;
        }
        Ok(values)
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
        self.forward(batch, depth, self.dtype, None, visit)
    }

    fn forward(
        &self,
        batch: Varlen<'_>,
        depth: usize,
        dtype: Dtype,
        mut contacts: Option<&mut Contacts>,
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
        let batch = Packed::new(batch, dtype.kind(), self.device)?;
        let mut x = self.weights.embedding.forward(&batch)?; // (rows, hidden)
        visit(0, &batch.own(&x)?)?;
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
                contacts.as_deref_mut(),
            )?;
            if number < layers {
                visit(number, &batch.own(&x)?)?;
            } else {
                visit(number, &self.weights.final_norm.forward(&batch.own(&x)?)?)?;
            }
        }
        Ok(())
    }
}
