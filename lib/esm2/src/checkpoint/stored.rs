//! The tensors of a checkpoint under their canonical names, checked against a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::Dtype;
use tch::{Device, Kind, Tensor};

use super::error::{CheckpointError, Names};
use super::folder::WeightFile;
use super::names::{SHARED_INV_FREQ, canonical};
use super::parameters::{Parameter, head_parameters, inv_freq_name, parameters};
use super::tensor::StoredTensor;
use crate::{Config, EsmError, Head};

/// Every tensor that is read. Once they are checked, those of the encoder are all there, each of the right shape and of
/// a type that is read.
pub(super) struct Stored<'a> {
    tensors: BTreeMap<String, Entry<'a>>,
}

struct Entry<'a> {
    file: &'a WeightFile,
    view: StoredTensor<'a>,
}

impl<'a> Stored<'a> {
    /// Finds the tensors in `files`. The headers are checked against the sizes of the files before anything else is.
    pub(super) fn of(folder: &Path, files: &'a [WeightFile]) -> Result<Self, CheckpointError> {
        let mut tensors = BTreeMap::new();
        for file in files {
            for (name, view) in file.tensors()? {
                let Some(tensor) = canonical(&name) else {
                    continue;
                };
                if tensors
                    .insert(tensor.clone(), Entry { file, view })
                    .is_some()
                {
                    let folder = folder.to_owned();
                    return Err(CheckpointError::Twice { folder, tensor });
                }
            }
        }
        Ok(Self { tensors })
    }

    /// Compares them with those that the model has.
    pub(super) fn check(&self, folder: &Path, config: &Config) -> Result<(), CheckpointError> {
        let required = parameters(config);
        let optional = optional(config);
        self.check_names(folder, &required, &optional)?;
        required
            .iter()
            .chain(&optional)
            .try_for_each(|parameter| self.check_form(parameter))
    }

    fn check_names(
        &self,
        folder: &Path,
        required: &[Parameter],
        optional: &[Parameter],
    ) -> Result<(), CheckpointError> {
        let known: BTreeSet<&str> = required
            .iter()
            .chain(optional)
            .map(|known| known.name.as_str())
            .collect();
        let missing: Vec<String> = required
            .iter()
            .filter(|parameter| !self.tensors.contains_key(&parameter.name))
            .map(|parameter| parameter.name.clone())
            .collect();
        let unexpected: Vec<String> = self
            .tensors
            .keys()
            .filter(|name| !known.contains(name.as_str()))
            .cloned()
            .collect();
        if missing.is_empty() && unexpected.is_empty() {
            Ok(())
        } else {
            Err(CheckpointError::Names {
                folder: folder.to_owned(),
                missing: Names(missing),
                unexpected: Names(unexpected),
            })
        }
    }

    fn check_form(&self, Parameter { name, shape }: &Parameter) -> Result<(), CheckpointError> {
        let Some(Entry { file, view }) = self.tensors.get(name) else {
            return Ok(());
        };
        let (path, tensor) = (file.path.clone(), name.clone());
        if view.shape() != shape {
            return Err(CheckpointError::Shape {
                path,
                tensor,
                expected: shape.clone(),
                found: view.shape().to_vec(),
            });
        }
        match kind(view.dtype()) {
            Some(_) => Ok(()),
            None => Err(CheckpointError::Type {
                path,
                tensor,
                found: view.dtype(),
            }),
        }
    }

    /// The tensors that are missing of a head.
    pub(super) fn missing(&self, config: &Config, head: Head) -> Vec<String> {
        let parameters = head_parameters(config, head).into_iter();
        let names = parameters.map(|parameter| parameter.name);
        names
            .filter(|name| !self.tensors.contains_key(name))
            .collect()
    }

    /// Whether a tensor is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// What `read` makes of a tensor as it is stored, if it is there.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&StoredTensor<'a>) -> T,
    ) -> Option<T> {
        let Entry { file, view } = self.tensors.get(name)?;
        let result = read(view);
        // A whole model is in memory once, and not once more in its file.
        file.forget();
        Some(result)
    }

    /// A copy of a tensor that is there on `device`, widened to f32.
    pub(super) fn tensor(&self, name: &str, device: Device) -> Result<Tensor, EsmError> {
        let copy = |view: &StoredTensor| {
            let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
            let kind = kind(view.dtype()).expect("types were checked");
            // That the bytes are as many as shape and type say was checked with the header.
            Tensor::f_from_data_size(&view.bytes(), &shape, kind)
        };
        let tensor = self.read(name, copy).expect("it is there")?;
        Ok(tensor.f_to_device(device)?.f_to_kind(Kind::Float)?)
    }
}

/// The types that weights are stored in.
fn kind(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F32 => Some(Kind::Float),
        Dtype::F16 => Some(Kind::Half),
        Dtype::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}

/// Tensors that a checkpoint may lack.
fn optional(config: &Config) -> Vec<Parameter> {
    let frequencies = (0..config.layers)
        .map(inv_freq_name)
        .chain([SHARED_INV_FREQ.to_owned()])
        .map(|name| Parameter {
            name,
            shape: vec![config.head_dim() / 2],
        });
    let heads = [Head::LanguageModel, Head::Contact];
    let heads = heads
        .into_iter()
        .flat_map(|head| head_parameters(config, head));
    frequencies.chain(heads).collect()
}
