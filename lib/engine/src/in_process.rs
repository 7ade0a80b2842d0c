//! Packs computed by a model in this process.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use plmkit_contract::{EmbeddingLayout, Stop};
use plmkit_esm2::{Esm2, Pending};

use crate::allowance::Allowance;
use crate::compute::Embedder;
use crate::journal::Timing;
use crate::pack::PackEmbedder;
use crate::reader::{Item, Received, receive, receive_ready};
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
    /// Loads the model of `config`, for packs of up to so many sequences and tokens.
    pub(crate) fn load(
        config: &'a Config,
        largest: (usize, usize),
        stop: &'a Stop,
    ) -> Result<Self, EngineError> {
        let mut model = Esm2::load(&config.model, config.setup(), stop)?;
        let columns = config.outputs.columns(model.config().layers)?;
        // Packs find out themselves what does not fit.
        if let Err(error) = model.reserve(largest, &columns) {
            tracing::debug!("{error}");
        }
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
        // What a GPU computes while the next pack is asked for.
        let mut on_device: Option<InFlight> = None;
        while !self.stop.requested() {
            let received = match on_device {
                None => receive(packs)?,
                Some(_) => receive_ready(packs)?,
            };
            if received.is_none() && on_device.is_none() {
                break;
            }
            let next = received.map(|received| InFlight::begin(&embedder, received));
            let (waits, computed) = match next {
                Some(next) if next.is_on_device() => (Some(next), None),
                next => (None, next),
            };
            // In the order of packs.
            for in_flight in on_device.take().into_iter().chain(computed) {
                let Some(finished) = in_flight.finish(&mut embedder)? else {
                    return Ok(());
                };
                let tokens = finished.job.pack.tokens().len() as u64;
                if results.send(finished).is_err() {
                    // The writer ended early and says why.
                    return Ok(());
                }
                observer.advanced(tokens);
            }
            on_device = waits;
        }
        Ok(())
    }
}

/// A pack that was asked for.
struct InFlight {
    received: Received,
    started: Instant,
    pending: Option<Result<Pending, EngineError>>,
}

impl InFlight {
    fn begin(embedder: &PackEmbedder<'_>, received: Received) -> Self {
        let Item { job, saved } = &received.item;
        let started = Instant::now();
        Self {
            pending: match saved {
                None => embedder.begin(job),
                Some(_) => None,
            },
            started,
            received,
        }
    }

    /// Whether a device is at work on it, so that there is something else to do.
    fn is_on_device(&self) -> bool {
        matches!(&self.pending, Some(Ok(pending)) if !pending.is_computed())
    }

    /// Waits for it, and computes what was not begun; `None` once a stop was requested.
    fn finish(self, embedder: &mut PackEmbedder<'_>) -> Result<Option<Finished>, EngineError> {
        let Received {
            item: Item { job, saved },
            wait,
            queue_depth,
        } = self.received;
        if let Some(saved) = saved {
            let result = Results::Saved(saved);
            return Ok(Some(Finished { job, result }));
        }
        let begun = self.pending.map(|pending| Ok(pending?.finish()?));
        let Some(computed) = embedder.embed(&job, begun)? else {
            return Ok(None);
        };
        let timing = Timing {
            wait,
            // A device that works while the program goes on has a clock of its own.
            compute: match computed.times {
                Some(times) => times.compute,
                None => self.started.elapsed(),
            },
            device: computed.times,
            queue_depth,
            worker: None,
        };
        let result = Results::Computed(computed, timing);
        Ok(Some(Finished { job, result }))
    }
}
