//! The tensors of a checkpoint under their canonical names, checked against a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plmkit_contract::{Quoted, path_text};

use super::error::{CheckpointError, list_names};
use super::foreign::{adapter, common_prefix, foreign_prefix};
use super::names::{CLASSIFIERS, SHARED_INV_FREQ, canonical};
use super::parameters::{
    BIAS, DECODER, DECODER_BIAS, POSITIONS, Parameter, WORDS, decoder_parameters, head_parameters,
    inv_freq_name, parameters,
};
use super::stored_tensor::{StoredTensor, stored_type};
use super::weight_file::WeightFile;
use crate::config::Positions;
use crate::rope::default_inv_freq;
use crate::{Head, ModelConfig};

/// The tensors of a checkpoint by canonical name, checked against its configuration: all tensors of the encoder are there, and all
/// tensors have the right shape and a supported type.
pub struct CheckpointTensors<'a> {
    config: ModelConfig,
    tensors: BTreeMap<String, StoredTensor<'a>>,
    /// The rotary frequencies of each layer; none in a model whose positions are learned.
    frequencies: Vec<Vec<f32>>,
    /// The layers whose frequencies are computed though the checkpoint should have them.
    computed_frequencies: usize,
    /// Whether the language-model head decodes with a matrix that is not the word embeddings.
    own_decoder: bool,
    /// Whether a classifier is stored, which is not read.
    has_classifier: bool,
}

impl<'a> CheckpointTensors<'a> {
    /// Reads the headers of `files`, and checks names, shapes and types against those of the model in `config`. `folder` is for
    /// messages. `config` gets the stored names and shapes.
    pub(super) fn read(
        files: &'a [WeightFile],
        folder: &Path,
        config: impl FnOnce(&[(&str, &[usize])]) -> Result<ModelConfig, CheckpointError>,
    ) -> Result<Self, CheckpointError> {
        let mut stored = Vec::new();
        for file in files {
            let tensors = file.tensors()?.into_iter();
            stored.extend(tensors.map(|(name, data)| (name, data, file)));
        }
        // Weights first: missing weights, or those of fair-esm, explain a missing config.json.
        let shapes = stored.iter();
        let shapes = shapes.map(|(name, data, _)| (name.as_str(), data.shape.as_slice()));
        let config = config(&shapes.collect::<Vec<_>>())?;
        let mut tensors = BTreeMap::<String, StoredTensor<'_>>::new();
        let (mut has_classifier, mut prefix) = (false, None);
        for (name, data, file) in stored {
            if let Some(adapter) = adapter(&name) {
                return Err(CheckpointError::invalid(&file.path, adapter));
            }
            prefix = Some(common_prefix(&name, prefix.as_deref()).to_owned());
            has_classifier |= CLASSIFIERS.iter().any(|head| name.starts_with(head));
            let names = canonical(&name);
            let parts = data.divided(names.len().max(1));
            for (name, data) in names.into_iter().zip(parts) {
                let tensor = StoredTensor { data, file };
                if let Some(other) = tensors.insert(name.clone(), tensor) {
                    let (name, other) = (Quoted(&name), path_text(other.path()));
                    let reason = format!("tensor {name} is stored twice, here and in {other}");
                    return Err(CheckpointError::invalid(&file.path, reason));
                }
            }
        }
        if config.is_rotary() {
            // ESM-2 stores a table that it does not use.
            tensors.remove(POSITIONS);
        }
        let computed = if config.is_rotary() {
            default_inv_freq(config.head_dim())
        } else {
            Vec::new()
        };
        let stores_frequencies = config.architecture.positions == Positions::StoredRotary;
        let mut read = Self {
            frequencies: vec![computed; config.layers],
            computed_frequencies: if stores_frequencies { config.layers } else { 0 },
            config,
            tensors,
            own_decoder: false,
            has_classifier,
        };
        read.check(folder, &prefix.unwrap_or_default())?;
        read.settle_decoder();
        read.read_frequencies()?;
        Ok(read)
    }

    /// Checks names, shapes and types. `prefix` is what all stored names begin with.
    fn check(&self, folder: &Path, prefix: &str) -> Result<(), CheckpointError> {
        let (required, optional) = (parameters(&self.config), optional_parameters(&self.config));
        let all = || required.iter().chain(&optional);
        let known: BTreeSet<&str> = all().map(|known| known.name.as_str()).collect();
        let missing = self.missing(&required);
        let names = self.tensors.keys();
        let unexpected = names.filter(|name| !known.contains(name.as_str()));
        let unexpected: Vec<String> = unexpected.cloned().collect();
        if !missing.is_empty() || !unexpected.is_empty() {
            let reason = format!(
                "not the tensors of this model: missing {}, unexpected {}{}",
                list_names(&missing),
                list_names(&unexpected),
                foreign_prefix(prefix)
            );
            return Err(CheckpointError::invalid(folder, reason));
        }
        for Parameter { name, shape } in all() {
            let Some(tensor) = self.find(name) else {
                continue;
            };
            let invalid = |reason| {
                CheckpointError::invalid(tensor.path(), format!("tensor '{name}': {reason}"))
            };
            let (found, dtype) = (&tensor.data.shape, tensor.data.dtype);
            if found != shape {
                return Err(invalid(format!(
                    "expected shape {shape:?}, found {found:?}"
                )));
            }
            if stored_type(dtype).is_none() {
                return Err(invalid(format!(
                    "expected type F32, F16 or BF16, found {dtype}"
                )));
            }
        }
        Ok(())
    }

    /// Decides what the language-model head decodes with, as transformers 5 does: a stored decoder is used unless it is the word
    /// embeddings.
    fn settle_decoder(&mut self) {
        let words = self.get(WORDS).values();
        self.own_decoder = match self.find(DECODER) {
            Some(decoder) => decoder.values() != words,
            None => !self.config.tied_decoder,
        };
        if let Some(bias) = self.tensors.remove(DECODER_BIAS) {
            match self.find(BIAS) {
                None => _ = self.tensors.insert(BIAS.to_owned(), bias),
                Some(own) if own.values() == bias.values() => {}
                Some(_) => _ = self.tensors.insert(DECODER_BIAS.to_owned(), bias),
            }
        }
    }

    /// Reads the stored frequencies, `(head_dim/2)` for each layer.
    ///
    /// ESM-2 was trained with frequencies rounded to f16, and its checkpoints store the rounded ones: at position 1000, exact
    /// frequencies differ by up to 0.16 radian.
    fn read_frequencies(&mut self) -> Result<(), CheckpointError> {
        if self.config.architecture.positions != Positions::StoredRotary {
            return Ok(());
        }
        for layer in 0..self.config.layers {
            let own = inv_freq_name(layer);
            let names = [own.as_str(), SHARED_INV_FREQ].into_iter();
            let mut stored = names.filter_map(|name| Some((name, self.find(name)?)));
            if let Some((name, tensor)) = stored.next() {
                tensor.check_finite(name, 0, tensor.bytes())?;
                self.frequencies[layer] = tensor.values();
                self.computed_frequencies -= 1;
            }
        }
        Ok(())
    }

    /// Logs what is not as in a published ESM-2.
    pub(super) fn report(&self, folder: &Path) {
        let folder = path_text(folder);
        if self.has_classifier {
            tracing::info!("{folder}: its classifier is not used");
        }
        if self.computed_frequencies > 0 {
            tracing::warn!(
                "{folder}: no inv_freq for {} of {} layers: computed them; the published ESM-2 have theirs rounded to f16, \
                 which shifts the vectors of long sequences",
                self.computed_frequencies,
                self.config.layers,
            );
        }
    }

    /// Returns the names of parameters that are not stored.
    fn missing(&self, parameters: &[Parameter]) -> Vec<String> {
        let names = parameters.iter().map(|parameter| &parameter.name);
        let missing = names.filter(|name| !self.tensors.contains_key(*name));
        missing.cloned().collect()
    }

    /// Returns the tensors that a head is computed from.
    pub(super) fn head_parameters(&self, head: Head) -> Vec<Parameter> {
        let mut parameters = head_parameters(&self.config, head);
        if head == Head::LanguageModel && self.own_decoder {
            let [decoder, _] = decoder_parameters(&self.config);
            parameters.push(decoder);
        }
        parameters
    }

    /// Says why a head cannot be computed, if so.
    pub(super) fn refusal_of_head(&self, head: Head) -> Option<String> {
        let missing = self.missing(&self.head_parameters(head));
        if !missing.is_empty() {
            return Some(format!("missing {}", list_names(&missing)));
        }
        // transformers never computes with both.
        let two = head == Head::LanguageModel && self.find(DECODER_BIAS).is_some();
        two.then(|| format!("expected one bias, found '{BIAS}' and another '{DECODER_BIAS}'"))
    }

    /// Returns a tensor by its canonical name, if it is stored.
    pub fn find(&self, name: &str) -> Option<&StoredTensor<'a>> {
        self.tensors.get(name)
    }

    /// Returns the sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the rotary frequencies of each layer, `(head_dim/2)` f32; empty in a model whose positions are learned.
    pub fn frequencies(&self) -> &[Vec<f32>] {
        &self.frequencies
    }

    /// Returns a tensor of the encoder, or of a head that the checkpoint [has](Self::has), by its canonical name.
    #[allow(clippy::missing_panics_doc, reason = "names were checked")]
    pub fn get(&self, name: &str) -> &StoredTensor<'a> {
        self.find(name).expect("names were checked")
    }

    /// Returns the bias of a module in f32; `width` zeros if the module has none.
    pub(super) fn bias(&self, module: &str, width: usize) -> Vec<f32> {
        let stored = self.find(&format!("{module}.bias"));
        stored.map_or_else(|| vec![0.0; width], StoredTensor::values)
    }

    /// Whether a head can be computed.
    pub fn has(&self, head: Head) -> bool {
        self.refusal_of_head(head).is_none()
    }

    /// Returns the name of the matrix with which the language-model head decodes: [`WORDS`], or one of its own.
    pub fn decoder(&self) -> &'static str {
        if self.own_decoder { DECODER } else { WORDS }
    }
}

/// Returns the tensors that a checkpoint may lack.
fn optional_parameters(config: &ModelConfig) -> Vec<Parameter> {
    let stored = config.architecture.positions == Positions::StoredRotary;
    let layers = if stored { config.layers } else { 0 };
    let shared = stored.then(|| SHARED_INV_FREQ.to_owned());
    let frequencies = (0..layers)
        .map(inv_freq_name)
        .chain(shared)
        .map(|name| Parameter {
            name,
            shape: vec![config.head_dim() / 2],
        });
    let heads = [Head::LanguageModel, Head::Contact];
    let heads = heads
        .into_iter()
        .flat_map(|head| head_parameters(config, head));
    frequencies
        .chain(heads)
        .chain(decoder_parameters(config))
        .collect()
}
