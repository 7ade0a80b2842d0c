//! One run, from opened files to a published one.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use plmkit_contract::{
    ByteDigest, Column, EmbeddingLayout, KERNELS, PACKING, Provenance, Reject, Stop, WINDOWS,
};
use plmkit_esm2::{Device, EsmError};
use plmkit_logs::event::Outcome as Ended;
use plmkit_store::{AtomicFile, Existing, StoreError, existing_embeddings};

use crate::backend::Backend;
use crate::block::Blocks;
use crate::facts::Facts;
use crate::journal::{Journal, Started, Totals};
use crate::output::Columns;
use crate::parity::{self, Parity};
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::rejects::{self, Rejects};
use crate::run_folder::{RunFolder, remove};
use crate::saved::{Saved, SavedBlocks};
use crate::writer::Writer;
use crate::{Config, EngineError};

/// Time between two looks at an output that another process is writing.
const BETWEEN_CLAIMS: Duration = Duration::from_millis(200);

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
    /// The output was complete before: verified, and left as it was.
    AlreadyComplete {
        /// Its rows.
        rows: u64,
        /// Sequences that could not be embedded.
        rejected: u64,
    },
    /// A stop was asked for. Nothing is at the output's path; what was computed is saved for the next run.
    Stopped {
        /// Batches that are saved.
        saved: u64,
        /// All batches.
        batches: u64,
    },
}

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Rows in the output: proteins, or their windows.
    pub rows: u64,
    /// Proteins of the input of which residues were cut off before.
    pub truncated: u64,
    /// Proteins, or windows, that could not be embedded.
    pub rejected: u64,
    /// Batches in the output.
    pub batches: u64,
    /// Of these, the ones that an earlier, interrupted run had saved.
    pub saved_batches: u64,
    /// Sequences that this run computed again in f32, since their values were not finite in the type of the model.
    pub in_f32: u64,
    /// Tokens computed by this run, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// The columns written.
    pub columns: Vec<Column>,
    /// Values in a vector.
    pub dim: usize,
    /// Time from the first pack to the published file; loading the model is not in it.
    pub elapsed: Duration,
}

/// Claims an output, with `--wait` when it is free.
pub(crate) fn claimed<T>(
    config: &Config,
    stop: &Stop,
    claim: impl Fn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut said = false;
    loop {
        match claim() {
            Err(busy @ StoreError::Busy { .. }) if config.wait => {
                if stop.requested() {
                    return Err(StoreError::Stopped);
                }
                if !said {
                    tracing::warn!("{busy}; waiting for it to end");
                    said = true;
                }
                thread::sleep(BETWEEN_CLAIMS);
            }
            claimed => return claimed,
        }
    }
}

/// Embeds every sequence of the batches files into one embeddings file.
pub fn embed(
    config: &Config,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<Outcome, EngineError> {
    // Before the output is claimed: a driver may hang. What takes no time to see comes before what may take minutes.
    let usable = stop.interruptible(|| config.device.check());
    usable.map_err(EsmError::from)?;
    // An output that is complete can be looked at where nothing can be written.
    let claim = || RunFolder::claim(&config.out, config.checkpoint_dir.as_deref());
    let claimed = match claimed(config, stop, claim) {
        Err(refused @ (StoreError::Busy { .. } | StoreError::Stopped)) => {
            return Err(refused.into());
        }
        claimed => claimed,
    };
    let plan = Plan::open(&config.batches, config.windows, stop)?;
    if plan.stitched() && config.outputs.contacts {
        return Err(EngineError::Contacts);
    }
    let (backend, facts) = Backend::start(config, &plan, stop)?;
    let layout = facts.layout(config, (plan.stitched(), plan.labels))?;
    let provenance = provenance(config, &plan, &facts, &layout.columns);
    if !config.force
        && let Existing::Complete { digest, rejects } =
            existing_embeddings(&config.out, &provenance, stop)?
    {
        if let Ok(folder) = claimed {
            folder.clear(&provenance, &layout)?;
        }
        let rejected = plan.rows.saturating_sub(digest.rows());
        rejects::verify(config, rejects.as_deref(), rejected)?;
        return Ok(Outcome::AlreadyComplete {
            rows: digest.rows(),
            rejected,
        });
    }
    let folder = claimed?;
    let saved = Saved::take_over(&folder, config, &plan, (&provenance, &layout), stop)?;
    let blocks = plan.blocks(&layout);
    let run = Run {
        config,
        plan: &plan,
        blocks: &blocks,
        facts: &facts,
        layout: &layout,
        provenance: &provenance,
    };
    let outcome = run.embed(&folder, backend, saved, observer);
    let outcome = outcome.map_err(|error| folder.explain(error))?;
    if let Outcome::Done(_) = outcome {
        folder.clear(&provenance, &layout)?;
    }
    Ok(outcome)
}

/// What a run works with.
struct Run<'a> {
    config: &'a Config,
    plan: &'a Plan,
    /// Those of the output.
    blocks: &'a [Range<u64>],
    facts: &'a Facts,
    layout: &'a EmbeddingLayout,
    provenance: &'a Provenance,
}

impl<'a> Run<'a> {
    /// Computes what is not saved, and publishes the output. What is replaced goes when nothing stands in the way.
    fn embed(
        &self,
        folder: &'a RunFolder,
        mut backend: Backend<'a>,
        saved: Saved,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, EngineError> {
        let config = self.config;
        let claim = AtomicFile::create(&config.out)?;
        let rejects = Rejects::begin(config, folder)?;
        let before = Instant::now();
        let parity = parity::gate(config, self.plan, self.facts, &mut backend)?;
        let compared = parity.map(|_| before.elapsed());
        let Saved {
            blocks,
            parts,
            replaced,
        } = saved;
        replaced.iter().try_for_each(|path| remove(path))?;
        let first = blocks.as_ref().map_or(0, SavedBlocks::end);
        let in_parts = parts.iter().map(|part| part.batches.clone());
        let ranges: Vec<Range<u64>> = std::iter::once(0..first).chain(in_parts).collect();
        let to_compute = self.plan.amount_without(&ranges);
        let started = Started {
            job: job_name(self.provenance),
            facts: self.facts,
            model: &config.model_name,
            gpu_uuids: self.gpu_uuids(),
            threads: config.threads.get(),
            workers: backend.workers(),
            batches_saved: self.plan.total.batches - to_compute.batches,
            to_compute,
            compared,
        };
        let firsts = parts.iter().map(|part| part.batches.start).collect();
        let in_blocks = blocks.as_ref().map(|saved| saved.rejects(self.plan));
        let mut writer = Writer {
            rejects: in_blocks.transpose()?.unwrap_or_default(),
            columns: Columns::new(self.layout),
            blocks: Blocks::new(
                (folder, config),
                (self.provenance, self.layout),
                self.blocks,
                blocks,
                firsts,
            )?,
            journal: Journal::start(config.events.as_deref(), self.plan, &started)?,
            batches: first,
            saved_batches: first,
            in_f32: 0,
        };
        config.device.say_if_cpu();
        observer.started(self.plan.total.tokens);
        observer.advanced(self.plan.tokens_before(first));
        let pipeline = Pipeline {
            plan: self.plan,
            prefetch: config.prefetch,
            backend: &mut backend,
            writer: &mut writer,
        };
        let computed = pipeline.run(parts, observer);
        observer.ended();
        let publication = (claim, rejects, parity);
        self.end(writer, publication, started.batches_saved, computed)
    }

    /// The GPUs that compute.
    fn gpu_uuids(&self) -> Option<Vec<String>> {
        match self.config.device {
            Device::All => Device::All,
            _ => self.facts.device.parse().ok()?,
        }
        .gpu_uuids()
    }

    /// Publishes what is complete and says how it ended. `saved_before` batches were in parts when the run began.
    fn end(
        &self,
        mut writer: Writer<'_>,
        publication: (AtomicFile, Rejects<'_>, Option<Parity>),
        saved_before: u64,
        computed: Result<(), EngineError>,
    ) -> Result<Outcome, EngineError> {
        let (batches, saved_batches, in_f32) =
            (writer.batches, writer.saved_batches, writer.in_f32);
        let rejected = writer.rejects.len() as u64;
        let mut journal = writer.journal;
        // Those of an earlier run, too: the event speaks of the whole output.
        journal.done.rejected = rejected;
        let published = match computed {
            Ok(()) if batches < self.plan.total.batches => {
                journal.end(Ended::Stopped);
                return Ok(Outcome::Stopped {
                    saved: (batches - writer.blocks.unsaved()).max(saved_before),
                    batches: self.plan.total.batches,
                });
            }
            Ok(()) => self.publish(&mut writer.blocks, publication, writer.rejects),
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The first error is the one to tell.
            let _ = writer.blocks.keep();
        }
        journal.end(match published {
            Ok(_) => Ended::Done,
            Err(_) => Ended::Failed,
        });
        let Totals { tokens, .. } = journal.done;
        Ok(Outcome::Done(Summary {
            rows: published?,
            truncated: self.plan.truncated,
            rejected,
            batches,
            saved_batches,
            in_f32,
            tokens,
            columns: self.layout.columns.clone(),
            dim: self.layout.dim,
            elapsed: journal.elapsed(),
        }))
    }

    /// Gives the files their names, the output last. Returns its rows.
    fn publish(
        &self,
        blocks: &mut Blocks<'_>,
        (claim, list, parity): (AtomicFile, Rejects<'_>, Option<Parity>),
        rejects: Vec<Reject>,
    ) -> Result<u64, EngineError> {
        let provenance = self.provenance.clone();
        let provenance = provenance
            .with_rejects(list.publish(rejects)?)
            .with_model(self.config.model_name.clone())
            .with_parity(parity.map(Parity::to_json));
        Ok(blocks.publish(&provenance, claim)?.digest.rows())
    }
}

/// The lasting name of the work: that of a run that goes on where an interrupted one stopped is the same. Kernels are left out:
/// what other kernels have computed is computed again, as a part of the same work.
fn job_name(provenance: &Provenance) -> String {
    let mut options = provenance.options.clone();
    options.remove(KERNELS);
    let work = serde_json::json!([provenance.inputs, options]);
    ByteDigest::of(work.to_string().as_bytes()).to_string()
}

/// What the output depends on. Threads, prefetch and the order of files' names are not in it.
fn provenance(config: &Config, plan: &Plan, facts: &Facts, columns: &[Column]) -> Provenance {
    let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
    let mut provenance = Provenance::new("gpu-embed", plan.digests())
        .with(PACKING, plan.packing())
        .with("model", facts.digest.as_str())
        .with("columns", names)
        .with("dtype", facts.dtype.to_string())
        .with("device", facts.device_kind())
        .with(KERNELS, facts.kernels.as_str())
        .with("store_dtype", config.store_dtype.to_string());
    for (name, value) in &plan.origin {
        provenance = provenance.with(name, value.clone());
    }
    if let Some(windows) = plan.windows {
        provenance = provenance.with(WINDOWS, windows.to_string());
    }
    // What is computed with more than the encoder depends on more than its digest.
    for (head, digest) in &facts.heads {
        provenance = provenance.with(head, digest.as_str());
    }
    provenance
}
