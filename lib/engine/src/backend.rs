//! Where packs are computed: in this process or in others.

use crossbeam_channel::{Receiver, Sender};
use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::{Device, EsmError, OwnGpu, set_threads};

use crate::facts::Facts;
use crate::in_process::InProcess;
use crate::parity::{Parity, Sample};
use crate::plan::Plan;
use crate::reader::Item;
use crate::run::Observer;
use crate::workers::Pool;
use crate::writer::Finished;
use crate::{Config, EngineError};

/// What computes the packs of a run.
pub(crate) enum Backend<'a> {
    /// A model in this process.
    InProcess(Box<InProcess<'a>>),
    /// Models in worker processes.
    Workers(Box<Pool<'a>>),
}

impl<'a> Backend<'a> {
    /// Loads the model for the packs of `plan`.
    pub(crate) fn start(
        config: &'a Config,
        plan: &Plan,
        stop: &'a Stop,
    ) -> Result<(Self, Facts), EngineError> {
        let devices = match (config.device, config.workers) {
            (Device::All, _) => Device::each_gpu().map_err(EsmError::from)?,
            (device, Some(count)) => vec![
                OwnGpu {
                    device,
                    visible: None
                };
                count.get()
            ],
            (_, None) => Vec::new(),
        };
        if !devices.is_empty() {
            let (pool, facts) = Pool::start(config, devices, plan, stop)?;
            return Ok((Self::Workers(Box::new(pool)), facts));
        }
        set_threads(config.threads);
        let here = InProcess::load(config, plan.largest(), stop)?;
        let facts = Facts::of(&here.model, &config.outputs)?;
        Ok((Self::InProcess(Box::new(here)), facts))
    }

    /// The processes that compute, where this one does not.
    pub(crate) fn workers(&self) -> Option<u64> {
        match self {
            Self::InProcess(_) => None,
            Self::Workers(pool) => Some(pool.count() as u64),
        }
    }

    /// How near the model, which is in int8, comes to f32.
    pub(crate) fn measure(&mut self, sample: Sample) -> Result<Parity, EngineError> {
        match self {
            Self::InProcess(here) => sample.measure(&here.model, here.stop),
            Self::Workers(pool) => pool.measure(sample),
        }
    }

    /// Computes pack after pack until there are no more, a stop is asked for, or nobody takes the results, which come in the
    /// order of the packs.
    pub(crate) fn run(
        &mut self,
        layout: &EmbeddingLayout,
        packs: &Receiver<Result<Item, EngineError>>,
        results: &Sender<Finished>,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        match self {
            Self::InProcess(here) => here.run(layout, packs, results, observer),
            Self::Workers(pool) => pool.run(layout, packs, results, observer),
        }
    }
}
