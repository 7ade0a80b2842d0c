//! model-tiny taken apart, to be changed and stored again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::f16;
use plmkit_esm2::{Esm2, EsmError};
use plmkit_kit::Stop;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::test_data;

/// A tensor as it is stored.
#[derive(Clone, PartialEq)]
pub struct Part {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Part {
    pub fn values(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::F32);
        let values = self
            .bytes
            .chunks_exact(4)
            .map(|bytes| bytes.try_into().unwrap());
        values.map(f32::from_le_bytes).collect()
    }
}

/// A checkpoint in memory.
#[derive(Clone)]
pub struct Tiny {
    pub config: Value,
    pub parts: BTreeMap<String, Part>,
}

impl Tiny {
    pub fn new() -> Self {
        let bytes = fs::read(test_data("model-tiny/model.safetensors")).unwrap();
        let parts = SafeTensors::deserialize(&bytes)
            .unwrap()
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let part = Part {
                    dtype: view.dtype(),
                    shape: view.shape().to_vec(),
                    bytes: view.data().to_vec(),
                };
                (name, part)
            });
        Self {
            config: serde_json::from_slice(&fs::read(test_data("model-tiny/config.json")).unwrap())
                .unwrap(),
            parts: parts.collect(),
        }
    }

    /// The same with every tensor under another name, or without those that get none.
    pub fn renamed(&self, rename: impl Fn(&str) -> Option<String>) -> Self {
        let parts = self
            .parts
            .iter()
            .filter_map(|(name, part)| Some((rename(name)?, part.clone())));
        Self {
            config: self.config.clone(),
            parts: parts.collect(),
        }
    }

    /// The bytes of a safetensors file of some of the tensors.
    pub fn bytes(&self, pick: impl Fn(&str) -> bool) -> Vec<u8> {
        let picked = self
            .parts
            .iter()
            .filter(|(name, _)| pick(name))
            .map(|(name, part)| {
                let view = TensorView::new(part.dtype, part.shape.clone(), &part.bytes).unwrap();
                (name, view)
            });
        serialize(picked, None).unwrap()
    }

    /// Writes a folder with one weight file.
    pub fn write(&self) -> TempDir {
        self.write_with(&self.bytes(|_| true))
    }

    /// Writes a folder with these bytes for weights.
    pub fn write_with(&self, weights: &[u8]) -> TempDir {
        self.write_file("model.safetensors", weights)
    }

    /// Writes a folder with these bytes for a weight file of PyTorch.
    pub fn write_bin(&self, weights: &[u8]) -> TempDir {
        self.write_file("pytorch_model.bin", weights)
    }

    fn write_file(&self, name: &str, weights: &[u8]) -> TempDir {
        let folder = self.write_config();
        fs::write(folder.path().join(name), weights).unwrap();
        folder
    }

    /// The same with every value rounded to f16.
    pub fn narrowed(&self) -> Self {
        let mut narrow = self.clone();
        for part in narrow.parts.values_mut() {
            let values = part.values().into_iter();
            part.bytes = values
                .flat_map(|value| f16::from_f32(value).to_le_bytes())
                .collect();
            part.dtype = Dtype::F16;
        }
        narrow
    }

    /// Writes a folder with two weight files and an index.
    pub fn write_sharded(&self) -> TempDir {
        let folder = self.write_config();
        let first = |name: &str| name.contains("layer.0") || name.contains("layer.2");
        let files = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ];
        fs::write(folder.path().join(files[0]), self.bytes(first)).unwrap();
        fs::write(
            folder.path().join(files[1]),
            self.bytes(|name| !first(name)),
        )
        .unwrap();
        let map: BTreeMap<&String, &str> = self
            .parts
            .keys()
            .map(|name| (name, files[usize::from(!first(name))]))
            .collect();
        let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
        fs::write(
            folder.path().join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        folder
    }

    fn write_config(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        folder
    }

    /// Writes it as one file and loads it.
    pub fn load(&self) -> Result<Esm2, EsmError> {
        load(self.write().path())
    }
}

/// Loads a folder to the CPU.
pub fn load(folder: &Path) -> Result<Esm2, EsmError> {
    Esm2::load(
        folder,
        plmkit_esm2::ComputeOptions::default(),
        &Stop::default(),
    )
}
