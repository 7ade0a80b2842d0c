//! The model of an engine: described first, and loaded when something is to be computed.

use std::path::Path;

use plmkit_contract::Column;
use plmkit_esm2::{Esm2, EsmError, Isa, LoadTimes, ModelInfo, describe};
use plmkit_kit::{Fault, Stop, path_text};
use plmkit_store::{AtomicFile, StoreError, read_input};

use crate::config::RunConfig;
use crate::error::EngineError;
use crate::scores::sources;

/// The model of an engine. It is in memory from the first job that computes.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) described: ModelInfo,
    /// The columns of its outputs.
    pub(crate) columns: Vec<Column>,
    /// What is known of the checkpoint, for the next description.
    known: String,
    /// Whether this process has hashed the checkpoint. Otherwise loading hashes it: damage leaves no trace in the times of a file.
    is_hashed: bool,
    loaded: Option<Esm2>,
    /// The most sequences and the most tokens of a batch for which memory is reserved.
    reserved: (usize, usize),
}

impl Model {
    /// Describes the model of `config`, from its file of digests if that knows the checkpoint.
    pub(crate) fn describe(config: &RunConfig, stop: &Stop) -> Result<Self, EngineError> {
        let digests = config.digests.as_deref();
        let text = digests.and_then(read);
        let text = text.unwrap_or_default();
        let (described, known) = describe(&config.model, config.compute, &text, stop)?;
        let columns = config.outputs.columns(described.config().layers);
        Ok(Self {
            columns: columns.map_err(EsmError::from)?,
            described,
            is_hashed: known != text,
            known,
            loaded: None,
            reserved: (0, 0),
        })
    }

    /// Writes what is known of the checkpoint, for the next description.
    pub(crate) fn write_digests(&self, path: &Path) {
        let is_new = read(path).as_ref() != Some(&self.known);
        if is_new && let Err(error) = write(path, &self.known) {
            tracing::debug!("{error}");
        }
    }

    /// Frees the weights.
    pub(crate) fn unload(&mut self) {
        (self.loaded, self.reserved) = (None, (0, 0));
    }

    /// Checks that the device is usable, before anything is claimed: its driver may hang.
    pub(crate) fn check_device(&self, config: &RunConfig, stop: &Stop) -> Result<(), EngineError> {
        match self.loaded {
            Some(_) => Ok(()),
            None => Ok(stop.interruptible(|| config.compute.check())?),
        }
    }

    /// Returns the model, and how long loading took if it was not loaded before. `largest` is the most sequences and the most tokens
    /// of a batch.
    pub(crate) fn load(
        &mut self,
        config: &RunConfig,
        largest: (usize, usize),
        stop: &Stop,
    ) -> Result<(&Esm2, Option<LoadTimes>), EngineError> {
        let (model, is_new) = match self.loaded.take() {
            Some(model) => (model, false),
            None => (self.load_described(config, stop)?, true),
        };
        let model = self.loaded.insert(model);
        let reserved = &mut self.reserved;
        let largest = (largest.0.max(reserved.0), largest.1.max(reserved.1));
        if largest != *reserved {
            *reserved = largest;
            let needed = sources(&self.columns, false);
            // If that much memory is refused, batches are split later.
            if let Err(error) = model.reserve(largest.0, largest.1, &needed) {
                tracing::debug!("{error}");
            }
        }
        let times = model.info().load_times;
        Ok((model, is_new.then_some(times)))
    }

    /// Loads the model. Existing outputs were compared with the description, so another model is an error; kernels decide last bits only.
    fn load_described(&self, config: &RunConfig, stop: &Stop) -> Result<Esm2, EngineError> {
        let known = if self.is_hashed { &*self.known } else { "" };
        let model = Esm2::load_known(&config.model, config.compute, known, stop)?;
        let (described, loaded) = (&self.described, model.info());
        let path = path_text(&config.model);
        if described.checkpoint != loaded.checkpoint {
            let what = "changed while this run loaded it";
            return Err(EngineError::data(path, what));
        }
        let how = |info: &ModelInfo| format!("{} in {}", info.device, info.dtype);
        let [expected, found] = [described, loaded].map(how);
        if expected == found {
            if Isa::Amx.is_withheld() {
                tracing::debug!(
                    "this CPU multiplies tiles (AMX), which the system does not permit"
                );
            }
            return Ok(model);
        }
        let what = format_args!("{path}: computed otherwise; expected {expected}, found {found}");
        Err(Fault::internal(what).into())
    }
}

fn write(path: &Path, text: &str) -> Result<(), StoreError> {
    let mut file = AtomicFile::create(path)?;
    file.append(text.as_bytes())?;
    file.finish()
}

/// The text of a file, if there is one.
fn read(path: &Path) -> Option<String> {
    String::from_utf8(read_input(path).ok()?).ok()
}
