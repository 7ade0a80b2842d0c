//! The tensors of a Hugging Face checkpoint.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Sizes and tensors, with the Hub's names without `esm.`.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Transformer layers.
    pub layers: usize,
    /// Channels of a token's vector.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Added to variances.
    pub eps: f64,
    /// Whether embeddings are scaled as in training.
    pub token_dropout: bool,
    tensors: BTreeMap<String, Vec<f32>>,
}

impl Checkpoint {
    /// Reads `config.json` and `model.safetensors` with the Hub's names and f32 weights.
    pub fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let config: Value = serde_json::from_slice(&fs::read(folder.join("config.json"))?)?;
        let size = |key: &str| {
            let value = config[key].as_u64().ok_or(format!("no {key}"))?;
            Ok::<_, Box<dyn Error>>(value as usize)
        };
        let bytes = fs::read(folder.join("model.safetensors"))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
            if view.dtype() == Dtype::F32 {
                let name = name.strip_prefix("esm.").unwrap_or(&name).to_owned();
                let values = view.data().chunks_exact(4);
                let values = values
                    .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
                tensors.insert(name, values.collect());
            }
        }
        Ok(Self {
            layers: size("num_hidden_layers")?,
            hidden: size("hidden_size")?,
            heads: size("num_attention_heads")?,
            eps: config["layer_norm_eps"]
                .as_f64()
                .ok_or("no layer_norm_eps")?,
            token_dropout: config["token_dropout"]
                .as_bool()
                .ok_or("no token_dropout")?,
            tensors,
        })
    }

    /// Returns the values of a tensor, row by row.
    ///
    /// # Panics
    /// If there is no tensor of this name.
    pub fn tensor(&self, name: &str) -> &[f32] {
        let tensor = self.tensors.get(name);
        tensor.unwrap_or_else(|| panic!("the checkpoint has no tensor '{name}'"))
    }
}
