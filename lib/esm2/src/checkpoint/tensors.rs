//! The tensors of a checkpoint under their canonical names, checked against a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_kit::{Quoted, path_text};

use super::folder::{check_json, described_in, model_folder, read_config, weight_files};
use super::foreign::{adapter, common_prefix, foreign_prefix, list_names};
use super::format;
use super::names::{CLASSIFIERS, canonical};
use super::parameters::{
    BIAS, DECODER, DECODER_BIAS, POSITIONS, WORDS, frequency_names, head_parameters,
    optional_parameters, parameters,
};
use super::stored_tensor::{StoredTensor, stored_type};
use super::tokens::check_tokens;
use super::weight_file::{Stamp, WeightFile, stamp};
use crate::config::{ModelConfig, Positions, check_first_release, from_shapes};
use crate::cuda::interface::Note;
use crate::error::EsmError;
use crate::heads::Head;
use crate::rope::default_inv_freq;

/// The tensors of a checkpoint by canonical name, checked against its configuration: all tensors of the encoder are there, and all
/// tensors have the right shape and a supported type.
pub struct CheckpointTensors {
    folder: PathBuf,
    pub(super) files: Vec<Arc<WeightFile>>,
    /// Of the weight files and of `config.json`.
    pub(super) stamps: Vec<Stamp>,
    config: ModelConfig,
    tensors: BTreeMap<String, StoredTensor>,
    /// Whether the language-model head decodes with a matrix that is not the word embeddings.
    own_decoder: bool,
    /// Whether a classifier is stored, which is not read.
    has_classifier: bool,
}

impl CheckpointTensors {
    /// Opens the folder or weight file `model`. Reads headers, and checks names, shapes and types against those of its configuration.
    ///
    /// # Errors
    /// The model is of another kind, or its weights are missing or have other shapes.
    pub fn open(model: &Path) -> Result<Self, EsmError> {
        let (folder, files) = (model_folder(model).to_owned(), weight_files(model)?);
        // Before it is read: a file that changes in between has another stamp next time.
        let config = folder.join("config.json").metadata().ok();
        let stamps = files.iter().map(|file| file.opened);
        let stamps = stamps.chain(config.as_ref().map(stamp)).collect();
        let stored: Vec<_> = files
            .iter()
            .map(format::tensors)
            .collect::<Result<_, _>>()?;
        let stored: Vec<(String, StoredTensor)> = stored.into_iter().flatten().collect();
        let folders = described_in(&files[0].path);
        // Weights first: missing weights, or those of fair-esm, explain a missing config.json.
        let shapes = stored.iter();
        let shapes = shapes.map(|(name, tensor)| (name.as_str(), tensor.shape()));
        let config = match from_shapes(&shapes.collect::<Vec<_>>()) {
            Some(config) => {
                for folder in &folders {
                    let check = |json: &[u8]| check_first_release(json, &config);
                    check_json(&folder.join("config.json"), check)?;
                }
                config
            }
            None => read_config(&folder.join("config.json"))?,
        };
        for folder in folders {
            check_tokens(folder, &config.tokens)?;
        }
        let mut tensors = BTreeMap::<String, StoredTensor>::new();
        let (mut has_classifier, mut prefix) = (false, None);
        for (name, tensor) in stored {
            let path = tensor.file.path.clone();
            if let Some(adapter) = adapter(&name) {
                return Err(EsmError::invalid(&path, adapter));
            }
            prefix = Some(common_prefix(&name, prefix.as_deref()).to_owned());
            has_classifier |= CLASSIFIERS.iter().any(|head| name.starts_with(head));
            let names = canonical(&name);
            let parts = tensor.divided(names.len().max(1));
            for (name, part) in names.into_iter().zip(parts) {
                if let Some(other) = tensors.insert(name.clone(), part) {
                    let (name, other) = (Quoted(&name), path_text(&other.file.path));
                    let reason = format!("tensor {name} is stored twice, here and in {other}");
                    return Err(EsmError::invalid(&path, reason));
                }
            }
        }
        if config.is_rotary() {
            // ESM-2 stores a table that it does not use.
            tensors.remove(POSITIONS);
        }
        let mut read = Self {
            folder,
            files,
            stamps,
            config,
            tensors,
            own_decoder: false,
            has_classifier,
        };
        read.check(&prefix.unwrap_or_default())?;
        read.choose_decoder();
        Ok(read)
    }

    /// Checks names, shapes and types. `prefix` is what all stored names begin with.
    fn check(&self, prefix: &str) -> Result<(), EsmError> {
        let (required, optional) = (parameters(&self.config), optional_parameters(&self.config));
        let all = || required.iter().chain(&optional);
        let known: BTreeSet<&String> = all().map(|(name, _)| name).collect();
        let missing = self.missing(&required);
        let unexpected = self.tensors.keys().filter(|name| !known.contains(name));
        let unexpected: Vec<String> = unexpected.cloned().collect();
        if !missing.is_empty() || !unexpected.is_empty() {
            let reason = format!(
                "not the tensors of this model: missing {}, unexpected {}{}",
                list_names(&missing),
                list_names(&unexpected),
                foreign_prefix(prefix)
            );
            return Err(EsmError::invalid(&self.folder, reason));
        }
        for (name, shape) in all() {
            let Some(tensor) = self.find(name) else {
                continue;
            };
            let (found, dtype) = (tensor.shape(), tensor.dtype);
            if found != shape {
                let what = format!("expected shape {shape:?}, found {found:?}");
                return Err(tensor.invalid(name, &what));
            }
            if stored_type(dtype).is_none() {
                let what = format!("expected type F32, F16 or BF16, found {dtype}");
                return Err(tensor.invalid(name, &what));
            }
        }
        Ok(())
    }

    /// Decides what the language-model head decodes with, as transformers 5 does: a stored decoder is used unless it is the word
    /// embeddings.
    fn choose_decoder(&mut self) {
        self.own_decoder = match self.find(DECODER) {
            Some(decoder) => decoder.values() != self.get(WORDS).values(),
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

    /// Returns log lines of what is not as in a published ESM-2.
    pub fn notes(&self) -> Vec<Note> {
        let (mut notes, folder) = (Vec::new(), path_text(&self.folder));
        if self.has_classifier {
            notes.push(Note {
                warning: false,
                text: format!("{folder}: its classifier is not used"),
            });
        }
        let layers = self.config.layers;
        let is_stored = |layer: &usize| self.stored_frequencies(*layer).is_some();
        let computed = layers - (0..layers).filter(is_stored).count();
        if computed > 0 && self.config.architecture.positions == Positions::StoredRotary {
            notes.push(Note {
                warning: true,
                text: format!(
                    "{folder}: no inv_freq for {computed} of {layers} layers: computed them; the published ESM-2 have \
                     theirs rounded to f16, which shifts the vectors of long sequences"
                ),
            });
        }
        notes
    }

    /// Checks that the files are still those that were opened.
    pub(super) fn check_unchanged(&self) -> Result<(), EsmError> {
        let mut files = self.files.iter();
        files.try_for_each(|file| file.check_unchanged())
    }

    /// Returns the names of parameters that are not stored.
    fn missing(&self, parameters: &[(String, Vec<usize>)]) -> Vec<String> {
        let names = parameters.iter().map(|(name, _)| name);
        let missing = names.filter(|name| !self.tensors.contains_key(*name));
        missing.cloned().collect()
    }

    /// Returns the tensors that a head is computed from.
    pub(super) fn head_parameters(&self, head: Head) -> Vec<(String, Vec<usize>)> {
        head_parameters(&self.config, head, self.own_decoder)
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
    pub fn find(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// Returns the sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the stored rotary frequencies of a layer, with their name.
    pub(super) fn stored_frequencies(&self, layer: usize) -> Option<(String, &StoredTensor)> {
        let mut names = frequency_names(layer).into_iter();
        names.find_map(|name| self.find(&name).map(|stored| (name, stored)))
    }

    /// Returns the rotary frequencies of a layer, `(head_dim/2)` f32; none in a model whose positions are learned.
    ///
    /// ESM-2 was trained with frequencies rounded to f16, and its checkpoints store the rounded ones: at position 1000, exact
    /// frequencies differ by up to 0.16 radian.
    pub fn frequencies(&self, layer: usize) -> Vec<f32> {
        match self.stored_frequencies(layer) {
            Some((_, stored)) => stored.values(),
            None if self.config.is_rotary() => default_inv_freq(self.config.head_dim()),
            None => Vec::new(),
        }
    }

    /// Returns a tensor of the encoder, or of a head that the checkpoint [has](Self::has), by its canonical name.
    #[allow(clippy::missing_panics_doc, reason = "names were checked")]
    pub fn get(&self, name: &str) -> &StoredTensor {
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
