//! Packs computed by a model in this process.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::Esm2;

use crate::allowance::Allowance;
use crate::compute::Embedder;
use crate::journal::Timing;
use crate::pack::PackEmbedder;
use crate::reader::{Item, Received, receive};
use crate::run::Observer;
use crate::writer::{Finished, Results};
use crate::{Config, EngineError};

/// A loaded model, and how it is to compute.
pub(crate) struct InProcess<'a> {
    pub(crate) model: Esm2,
    pub(crate) config: &'a Config,
    pub(crate) stop: &'a Stop,
}

impl<'a> InProcess<'a> {
    /// Loads the model of `config`.
    pub(crate) fn load(config: &'a Config, stop: &'a Stop) -> Result<Self, EngineError> {
        let model = Esm2::load(&config.model, config.setup(), stop)?;
        Ok(Self {
            model,
            config,
            stop,
        })
    }

    /// Computes pack after pack until there are no more, a stop is asked for, or nobody takes the results.
    pub(crate) fn run(
        &self,
        layout: &EmbeddingLayout,
        packs: &Receiver<Result<Item, EngineError>>,
        results: &Sender<Finished>,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        let embedder = Embedder {
            model: &self.model,
            stop: self.stop,
            injection: &self.config.injection,
            allowance: Allowance::default(),
        };
        let mut embedder = PackEmbedder::new(embedder, layout);
        while !self.stop.requested()
            && let Some(Received {
                item: Item { job, saved },
                wait,
                queue_depth,
            }) = receive(packs)?
        {
            let started = Instant::now();
            let result = if let Some(saved) = saved {
                Results::Saved(saved)
            } else {
                let Some(computed) = embedder.embed(&job)? else {
                    break;
                };
                let timing = Timing {
                    wait,
                    compute: started.elapsed(),
                    queue_depth,
                    worker: None,
                };
                Results::Computed(computed, timing)
            };
            let tokens = job.pack.tokens().len() as u64;
            if results.send(Finished { job, result }).is_err() {
                // The writer ended early and says why.
                break;
            }
            observer.advanced(tokens);
        }
        Ok(())
    }
}
