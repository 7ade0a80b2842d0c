//! The model of an engine in memory.

use plmkit_contract::{Exit, Stop, path_text};
use plmkit_esm2::{Esm2, LoadTimes, ModelInfo};

use crate::config::RunConfig;
use crate::error::EngineError;
use crate::scores::sources;

/// The model of an engine, from the first job that computes.
#[derive(Debug, Default)]
pub(crate) struct LoadedModel {
    model: Option<Esm2>,
    /// The most sequences and the most tokens of a batch for which memory is reserved.
    reserved: (usize, usize),
}

impl LoadedModel {
    /// Returns the model that was `described`, and how long loading took if it was not loaded before. `largest` is the most sequences
    /// and the most tokens of a batch.
    pub(crate) fn get(
        &mut self,
        config: &RunConfig,
        described: &ModelInfo,
        largest: (usize, usize),
        stop: &Stop,
    ) -> Result<(&Esm2, Option<LoadTimes>), EngineError> {
        let loads = self.model.is_none();
        let model = match self.model.take() {
            Some(model) => model,
            None => load(config, described, stop)?,
        };
        let model = self.model.insert(model);
        let reserved = &mut self.reserved;
        let largest = (largest.0.max(reserved.0), largest.1.max(reserved.1));
        if largest != *reserved {
            *reserved = largest;
            let needed = sources(&config.columns(described)?, false);
            // If that much memory is refused, batches are split later.
            if let Err(error) = model.reserve(largest, &needed) {
                tracing::debug!("{error}");
            }
        }
        let times = model.info().load_times;
        Ok((model, loads.then_some(times)))
    }
}

/// Loads the model. Existing outputs were compared with its description, so a model that is another is an error.
fn load(config: &RunConfig, described: &ModelInfo, stop: &Stop) -> Result<Esm2, EngineError> {
    let model = Esm2::load(&config.model, config.compute, stop)?;
    let (loaded, path) = (model.info(), path_text(&config.model));
    if described.checkpoint != loaded.checkpoint {
        return Err(EngineError::data(path, "changed while this run loaded it"));
    }
    let how = |info: &ModelInfo| format!("{} in {} by {}", info.device, info.dtype, info.kernels);
    let [expected, found] = [described, loaded].map(how);
    if expected == found {
        return Ok(model);
    }
    let what = format_args!("not computed as described; expected {expected}, found {found}");
    Err(EngineError::new(
        Exit::Internal,
        format_args!("{path}: {what}"),
    ))
}

/// Stands in for the description without weights.
pub(crate) fn describe(
    model: &std::path::Path,
    options: plmkit_esm2::ComputeOptions,
    _digests: Option<&std::path::Path>,
    stop: &Stop,
) -> Result<ModelInfo, plmkit_esm2::EsmError> {
    Ok(Esm2::load(model, options, stop)?.info().clone())
}
