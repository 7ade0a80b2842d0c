//! The model, before anything is computed with it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{io_text, path_text};
use plmkit_esm2::{CheckpointTensors, EsmError, Head, read_checkpoint};
use plmkit_hub::{ModelId, Settings, model_name, resolve};
use plmkit_store::EmbeddingsReader;

/// What is known of the model.
pub(crate) struct Model {
    /// As it was named.
    pub(crate) name: String,
    /// Sizes and times of change of its files, which tell these weights from others at the same path. Empty for a model that is still
    /// to be fetched.
    pub(crate) weights: String,
}

impl Model {
    /// Looks at a model: its configuration must be readable and its weights must exist, unless `download` will fetch it.
    pub(crate) fn look_at(name: &str, download: bool, stop: &Stop) -> Result<Self, Fault> {
        let path = Path::new(name);
        let in_cache = resolve(path, &Settings::from_env(), None, stop);
        let found = match in_cache {
            Err(_) if download => None,
            found => Some(found?),
        };
        let weights = found.map(|found| weights(&found)).transpose();
        let weights = weights.map_err(|fault| with_owner(name, fault))?;
        Ok(Self {
            name: name.to_owned(),
            weights: weights.unwrap_or_default(),
        })
    }

    /// The commit of a model of the Hub that is in the local cache.
    pub(crate) fn revision(&self, stop: &Stop) -> Option<String> {
        let path = Path::new(&self.name);
        ModelId::parse(&self.name).filter(|_| !path.exists())?;
        let snapshot = resolve(path, &Settings::from_env(), None, stop).ok()?;
        model_name(&snapshot).revision
    }

    /// The digests of the weights and of the heads, by their options in embeddings; `None` for a model that is still to be fetched.
    /// Hashes the model, which takes a second for a GB or two.
    pub(crate) fn digests(&self, stop: &Stop) -> Result<Option<BTreeMap<&str, String>>, Fault> {
        let Ok(found) = resolve(Path::new(&self.name), &Settings::from_env(), None, stop) else {
            return Ok(None);
        };
        let (info, ()) = read_checkpoint(&found, stop, |_, _| Ok::<_, EsmError>(()))?;
        let heads = info.heads.into_iter();
        let heads = heads.filter_map(|(head, digest)| Some((head.name(), digest.ok()?)));
        Ok(Some(heads.chain([("model", info.digest)]).collect()))
    }

    /// Whether these embeddings were computed with these weights.
    pub(crate) fn made(&self, embeddings: &Path, stop: &Stop) -> Result<bool, Fault> {
        let (Some(own), Ok(found)) = (self.digests(stop)?, EmbeddingsReader::open(embeddings))
        else {
            return Ok(false);
        };
        let of = &found.provenance().options;
        let mut names = ["model", Head::LanguageModel.name(), Head::Contact.name()].into_iter();
        let is_same = |name| {
            let digest = own.get(name).map(String::as_str);
            of.get(name).is_none_or(|found| found.as_str() == digest)
        };
        Ok(of.contains_key("model") && names.all(is_same))
    }

    /// Whether another name is that of this model: paths are compared by the file they lead to.
    pub(crate) fn is(&self, other: &str) -> bool {
        let canonical = |name: &str| fs::canonicalize(name).ok();
        other == self.name
            || canonical(other).is_some_and(|path| Some(path) == canonical(&self.name))
    }
}

/// Adds to the error of a bare name of the Hub that its owner is missing.
fn with_owner(name: &str, fault: Fault) -> Fault {
    if fault.exit() != Exit::NoInput || !name.starts_with("esm") || name.contains('/') {
        return fault;
    }
    let message = fault.message();
    Fault::new(
        Exit::NoInput,
        format!(
            "{message}; a model of the Hub is named with its owner, as in facebook/esm2_t33_650M_UR50D"
        ),
    )
}

fn weights(model: &Path) -> Result<String, Fault> {
    let mut text = Vec::new();
    for file in CheckpointTensors::open(model)?.files() {
        let found = fs::metadata(&file).map_err(|error| {
            let what = format!("{}: cannot read it: {}", path_text(&file), io_text(&error));
            Fault::new(Exit::NoInput, what)
        })?;
        let (size, seconds, nanoseconds) = (found.len(), found.mtime(), found.mtime_nsec());
        text.push(format!("{size} {seconds}.{nanoseconds:09}"));
    }
    Ok(text.join(" "))
}
