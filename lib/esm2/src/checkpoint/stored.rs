//! The tensors of a checkpoint under their canonical names, checked against a configuration.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use plmkit_cpu::Stored as As;
use safetensors::Dtype;
use tch::{Device, Kind, Tensor};

use super::error::{CheckpointError, Names};
use super::folder::WeightFile;
use super::names::{SHARED_INV_FREQ, canonical};
use super::parameters::{Parameter, head_parameters, inv_freq_name, parameters};
use super::tensor::StoredTensor;
use super::upload::upload;
use crate::{EsmError, Head, ModelConfig};

/// Every tensor that is read. Once they are checked, those of the encoder are all there, each of the right shape and of
/// a type that is read.
pub(super) struct Stored<'a> {
    tensors: BTreeMap<String, Entry<'a>>,
}

/// A tensor, and what is still to be read of it.
pub(super) struct Entry<'a> {
    pub(super) view: StoredTensor<'a>,
    file: &'a WeightFile,
    /// Those who were [announced](Self::announce) and have not [read](Self::was_read).
    readers: AtomicUsize,
}

impl<'a> Entry<'a> {
    /// Someone will read it.
    pub(super) fn announce(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// One who was announced has read it.
    pub(super) fn was_read(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
        self.forget();
    }

    /// A whole model is in memory once, and not once more in its file.
    fn forget(&self) {
        if self.readers.load(Ordering::Relaxed) == 0 {
            self.file.forget(self.view.extent());
        }
    }

    /// The type of its values.
    pub(super) fn stored(&self) -> As {
        stored_as(self.view.dtype()).expect("types were checked")
    }

    /// The size of a dimension of a matrix.
    pub(super) fn size(&self, dimension: usize) -> usize {
        self.view.shape()[dimension]
    }

    /// The file that it lies in.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// The values of a row of a matrix.
    pub(super) fn row(&self, row: usize) -> Cow<'a, [u8]> {
        let width = self.size(1) * self.stored().bytes();
        self.view.bytes(row * width..(row + 1) * width)
    }

    /// All values, widened to f32.
    pub(super) fn values(&self) -> Vec<f32> {
        let bytes = self.view.bytes(0..self.view.len());
        let mut values = vec![0.0; bytes.len() / self.stored().bytes()];
        self.stored().widen(&bytes, &mut values);
        self.forget();
        values
    }

    /// A copy on `device`, widened to f32.
    pub(super) fn tensor(&self, device: Device) -> Result<Tensor, EsmError> {
        let kind = match self.stored() {
            As::F32 => Kind::Float,
            As::F16 => Kind::Half,
            As::Bf16 => Kind::BFloat16,
        };
        let shape: Vec<i64> = self.view.shape().iter().map(|&size| size as i64).collect();
        let bytes = upload(&self.view.bytes(0..self.view.len()), device)?;
        self.forget();
        // That the bytes are as many as shape and type say was checked with the header.
        Ok(bytes
            .f_view_dtype(kind)?
            .f_view(shape.as_slice())?
            .f_to_kind(Kind::Float)?)
    }
}

impl<'a> Stored<'a> {
    /// Finds the tensors in `files`. The headers are checked against the sizes of the files before anything else is.
    pub(super) fn open(folder: &Path, files: &'a [WeightFile]) -> Result<Self, CheckpointError> {
        let mut tensors = BTreeMap::new();
        for file in files {
            for (name, view) in file.tensors()? {
                let Some(tensor) = canonical(&name) else {
                    continue;
                };
                let entry = Entry {
                    view,
                    file,
                    readers: AtomicUsize::new(0),
                };
                if tensors.insert(tensor.clone(), entry).is_some() {
                    let folder = folder.to_owned();
                    return Err(CheckpointError::Twice { folder, tensor });
                }
            }
        }
        Ok(Self { tensors })
    }

    /// Compares them with those that the model has.
    pub(super) fn check(&self, folder: &Path, config: &ModelConfig) -> Result<(), CheckpointError> {
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
        let Some(Entry { file, view, .. }) = self.tensors.get(name) else {
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
        match stored_as(view.dtype()) {
            Some(_) => Ok(()),
            None => Err(CheckpointError::Type {
                path,
                tensor,
                found: view.dtype(),
            }),
        }
    }

    /// The tensors that are missing of a head.
    pub(super) fn missing(&self, config: &ModelConfig, head: Head) -> Vec<String> {
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

    /// A tensor that is there.
    pub(super) fn entry(&self, name: &str) -> &Entry<'a> {
        self.tensors.get(name).expect("it is there")
    }
}

/// The types that weights are stored in.
fn stored_as(dtype: Dtype) -> Option<As> {
    match dtype {
        Dtype::F32 => Some(As::F32),
        Dtype::F16 => Some(As::F16),
        Dtype::BF16 => Some(As::Bf16),
        _ => None,
    }
}

/// Tensors that a checkpoint may lack.
fn optional(config: &ModelConfig) -> Vec<Parameter> {
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
