//! One run, from opened files to a published one.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use plmkit_contract::{Provenance, Stop, VectorColumn};
use plmkit_esm2::{Esm2, Varlen, set_threads};
use plmkit_store::{EmbeddingsWriter, Existing, existing_embeddings};
use plmkit_telemetry::event::Outcome as Ended;

use crate::journal::{Journal, Started, Timing};
use crate::plan::{Job, Plan};
use crate::reader::{Received, read, receive};
use crate::writer::{Computed, write};
use crate::{Config, EngineError};

/// The type in which the model computes.
pub(crate) const COMPUTE_DTYPE: &str = "f32";
/// Results that may wait for the writer: enough for it to close a row group while the next pack is computed.
const RESULTS_AHEAD: usize = 2;

/// Someone who watches a run.
pub trait Observer {
    /// The run starts; it has this many tokens before it.
    fn started(&mut self, tokens: u64);
    /// This many tokens more are computed.
    fn advanced(&mut self, tokens: u64);
    /// No more will be computed.
    fn ended(&mut self);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The output is complete.
    Done(Summary),
    /// The output was complete before: verified, and left as it was. It has this many rows.
    AlreadyComplete(u64),
    /// A stop was asked for; nothing was published.
    Stopped,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Rows written: sequences, or their windows.
    pub sequences: u64,
    /// Tokens computed, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// Residues computed.
    pub residues: u64,
    /// Packs computed.
    pub batches: u64,
    /// The columns written.
    pub columns: Vec<VectorColumn>,
    /// Values in a vector.
    pub dim: usize,
    /// Time from the first pack to the published file; loading the model is not in it.
    pub elapsed: Duration,
}

/// Embeds every sequence of the batches files into one embeddings file.
pub fn embed(
    config: &Config,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<Outcome, EngineError> {
    let plan = Plan::open(&config.batches)?;
    set_threads(config.threads);
    let model = Esm2::load(&config.model, config.device)?;
    let columns = config.columns(model.config().layers);
    let provenance = provenance(config, &plan, &model, &columns);
    if !config.force
        && let Existing::Complete(digest) = existing_embeddings(&config.out, &provenance)?
    {
        return Ok(Outcome::AlreadyComplete(digest.rows()));
    }

    let dim = model.config().hidden;
    let mut file = EmbeddingsWriter::create(&config.out, &columns, dim, config.store_dtype)?;
    let started = Started {
        model_digest: model.digest(),
        device: &model.device(),
        threads: config.threads.get(),
    };
    let mut journal = Journal::start(config.events.as_deref(), &plan, &started)?;
    observer.started(plan.tokens);
    let pipeline = Pipeline {
        plan: &plan,
        model: &model,
        columns: &columns,
        stop,
    };
    let computed = pipeline.run(config, &mut file, &mut journal, observer);
    observer.ended();
    let published = match computed {
        Ok(()) if stop.requested() => {
            journal.end(Ended::Stopped);
            return Ok(Outcome::Stopped);
        }
        Ok(()) => file.finish(&provenance).map_err(EngineError::from),
        Err(error) => Err(error),
    };
    journal.end(if published.is_ok() {
        Ended::Done
    } else {
        Ended::Failed
    });
    published?;
    Ok(Outcome::Done(Summary {
        sequences: journal.done.sequences,
        tokens: journal.done.tokens,
        residues: journal.done.residues,
        batches: plan.batches,
        columns,
        dim,
        elapsed: journal.elapsed(),
    }))
}

/// What the output depends on. Threads, prefetch and the order of files' names are not in it.
fn provenance(config: &Config, plan: &Plan, model: &Esm2, columns: &[VectorColumn]) -> Provenance {
    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
    let device = model.device();
    let device = device.split(':').next().unwrap_or(&device);
    Provenance::new("gpu-embed", plan.digests())
        .with("model", model.digest())
        .with("columns", columns)
        .with("dtype", COMPUTE_DTYPE)
        .with("device", device)
        .with("store_dtype", config.store_dtype.to_string())
}

/// What the three stages of a run share.
struct Pipeline<'a> {
    plan: &'a Plan,
    model: &'a Esm2,
    columns: &'a [VectorColumn],
    stop: &'a Stop,
}

impl<'a> Pipeline<'a> {
    /// Runs reader, computation and writer side by side until all packs are through or one of them ends early.
    fn run(
        &self,
        config: &Config,
        file: &mut EmbeddingsWriter,
        journal: &mut Journal,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        let (packs_in, packs) = bounded(config.prefetch.get());
        let (results, results_out) = bounded(RESULTS_AHEAD);
        let (plan, columns) = (self.plan, self.columns);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("reader".into())
                .spawn_scoped(scope, move || read(plan, &packs_in))?;
            let writer = thread::Builder::new()
                .name("writer".into())
                .spawn_scoped(scope, move || {
                    write(&results_out, file, columns, config.store_dtype, journal)
                })?;
            let computed = self.compute(&packs, &results, observer);
            // The other threads end when their queues do.
            drop((packs, results));
            let written = writer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(computed)
        })
    }

    /// Computes pack after pack until there are no more, a stop is asked for, or the writer has gone.
    fn compute(
        &self,
        packs: &Receiver<Result<Job<'a>, EngineError>>,
        results: &Sender<Computed<'a>>,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        while !self.stop.requested()
            && let Some(Received {
                job,
                wait,
                queue_depth,
            }) = receive(packs)?
        {
            let started = Instant::now();
            let batch = Varlen::new(job.pack.tokens(), job.pack.cu_seqlens())
                .map_err(|error| EngineError::batch(job.path, job.batch_in_file, error))?;
            let vectors = self.model.pooled(batch, self.columns)?;
            let timing = Timing {
                wait,
                compute: started.elapsed(),
                queue_depth,
            };
            let tokens = job.pack.tokens().len() as u64;
            let computed = Computed {
                job,
                vectors,
                timing,
            };
            if results.send(computed).is_err() {
                // The writer ended early and says why.
                break;
            }
            observer.advanced(tokens);
        }
        Ok(())
    }
}
