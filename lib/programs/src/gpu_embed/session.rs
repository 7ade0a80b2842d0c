//! One model, and the outputs that it computes one after the other.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::time::Duration;

use plmkit_check::count_reasons;
use plmkit_cli::{Exit, Fault, Stop, on_abort};
use plmkit_contract::{BatchSize, Provenance};
use plmkit_engine::{EmbedSummary, Engine, Job, RunOutcome, RunProgress};
use plmkit_esm2::EsmError;
use plmkit_hub::HubError;
use plmkit_kit::{path_text, plural};
use plmkit_logs::gpu_csv::GpuCsvWriter;
use plmkit_store::read_rejects;
use plmkit_telemetry::{Recorder, Sampler};

use super::args::Args;
use super::model::locate;

/// Time between two samples of the machine.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// A model that embeds shard after shard. It is loaded when the first one is to be computed.
pub struct Session {
    engine: Engine,
    /// The driver's library, which is loaded once.
    sampler: Option<Sampler>,
    /// Whether the [hint](plmkit_esm2::ModelInfo::hint) was given.
    hinted: bool,
}

impl Session {
    /// Finds the model, or fetches it, and describes it. `None` after a stop: what was fetched is kept.
    ///
    /// # Errors
    /// The model is missing, damaged or of another kind, the options contradict each other, or the device is not there.
    pub fn open(args: &Args, stop: &Stop) -> Result<Option<Self>, Fault> {
        let aborted = EsmError::of_driver(args.options.computation.device, &how_it_aborts());
        on_abort(&args.common, stop, &aborted.into())
            .map_err(|error| Fault::of_system(Exit::Internal, "cannot handle signals", &error))?;
        // Before a download: without the device, nothing would be computed.
        let compute = args.config()?.compute;
        stop.interruptible(|| compute.is_cpu())?;
        let model = match locate(args, stop) {
            Err(HubError::Stopped) => {
                tracing::warn!("stopped: what was fetched is kept; run the same command to resume");
                return Ok(None);
            }
            located => located?,
        };
        let mut args = args.clone();
        args.model = model;
        Ok(Some(Self {
            engine: Engine::new(args.config()?, stop)?,
            sampler: None,
            hinted: false,
        }))
    }

    /// What differs between embeddings of this provenance and those that this session would make; `None`: nothing.
    pub fn difference(&self, found: &Provenance) -> Option<String> {
        self.engine.difference(found)
    }

    /// Takes the device and the type that are not given for given: what was made otherwise is other work.
    pub fn pin_device_and_type(&mut self) {
        self.engine.pin_device_and_type();
    }

    /// Frees the model, which is loaded again if it is needed.
    pub fn unload(&mut self) {
        self.engine.unload();
    }

    /// The model, and what is computed with it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Measures how many tokens a batch may have, and writes that to the output of `args`, if there is one.
    ///
    /// # Errors
    /// The device fails, or the output is of other work.
    pub fn probe(&mut self, args: &Args, stop: &Stop) -> Result<BatchSize, Fault> {
        let Job {
            out,
            force,
            wait,
            events,
            ..
        } = args.job()?;
        let out = (!out.as_os_str().is_empty()).then_some(&*out);
        let size = self
            .engine
            .probe(out, force, wait, events.as_deref(), stop)?;
        log_size(&size);
        Ok(size)
    }

    /// Embeds the batches of `args`, with a record of the machine at `samples`.
    ///
    /// # Errors
    /// The output is of other work, an input is damaged, or the computation fails.
    pub fn embed(
        &mut self,
        args: &Args,
        samples: Option<&Path>,
        stop: &Stop,
        report: &mut dyn FnMut(RunProgress),
    ) -> Result<Exit, Fault> {
        let job = args.job()?;
        let recorder = samples.and_then(|path| self.record(path));
        let outcome = self.engine.embed(&job, stop, report);
        if let Some(recorder) = recorder {
            self.sampler = recorder.finish();
        }
        let out = path_text(&job.out);
        let rejected = match outcome? {
            RunOutcome::Done(summary) => {
                let hint = self.engine.info().hint().filter(|_| !self.hinted);
                if let Some(hint) = hint {
                    tracing::info!("{hint}");
                    self.hinted = true;
                }
                tracing::info!("{out}: {}", line(&summary));
                summary.rejected
            }
            RunOutcome::AlreadyComplete { rows, rejected } => {
                let rows = plural(rows, "row");
                tracing::info!("{out}: already complete and verified, {rows}");
                rejected
            }
            RunOutcome::Stopped { saved, batches } => {
                tracing::warn!(
                    "stopped: {saved} of {} saved; run the same command to resume",
                    plural(batches, "batch")
                );
                return Ok(Exit::Done);
            }
        };
        Ok(if rejected == 0 {
            Exit::Done
        } else {
            Exit::Negative
        })
    }

    /// Starts a record of the machine. A run goes on without one.
    fn record(&mut self, path: &Path) -> Option<Recorder> {
        let log = GpuCsvWriter::append(path)
            .inspect_err(|error| tracing::warn!("{error}; going on without a record"))
            .ok()?;
        let sampler = self.sampler.take();
        let open = move || sampler.unwrap_or_else(|| Sampler::open(None));
        Recorder::start(log, SAMPLE_INTERVAL, open)
            .inspect_err(|error| tracing::warn!("cannot start recording: {error}"))
            .ok()
    }
}

/// How a driver ends the process, with the setting of the user over which libtorch does that, too.
fn how_it_aborts() -> String {
    let variables = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
    let mut set = variables
        .into_iter()
        .filter(|name| env::var_os(name).is_some());
    set.next().map_or_else(
        || "it aborts".to_owned(),
        |name| format!("it aborts, as libtorch does over a {name} that it cannot read"),
    )
}

/// Tells that sequences of an output could not be embedded, for which reasons, and where they are listed.
pub fn log_rejected(out: &Path, rejects: &Path) {
    let lines = read_rejects(rejects).map_or_else(|_| Vec::new(), |list| list.lines);
    let mut by_reason = BTreeMap::new();
    for line in &lines {
        *by_reason.entry(line.reason).or_default() += 1;
    }
    tracing::error!(
        "{}: {} could not be embedded, listed in {}: {}",
        path_text(out),
        plural(lines.len() as u64, "sequence"),
        path_text(rejects),
        count_reasons(&by_reason, None)
    );
}

/// Describes a completed run in one line.
fn line(summary: &EmbedSummary) -> String {
    let seconds = summary.elapsed.as_secs_f64();
    let columns = summary.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| column.with_shape(summary.widths))
        .collect();
    let saved = match summary.saved_batches {
        0 => String::new(),
        saved => format!(" ({saved} saved by an earlier run)"),
    };
    let in_f32 = match summary.in_f32 {
        0 => String::new(),
        again => format!(", {} again in f32", plural(again, "sequence")),
    };
    let mut rate = vec![format!("{:.0} tokens/s", summary.tokens as f64 / seconds)];
    rate.extend_from_slice(&summary.tiers);
    let truncated = match summary.truncated {
        0 => String::new(),
        count => format!("; truncated: {}", plural(count, "protein")),
    };
    format!(
        "{} of {} from {}{saved}, {}{in_f32} in {seconds:.1} s, {}{truncated}",
        plural(summary.rows, "row"),
        columns.join(", "),
        plural(summary.batches, "batch"),
        plural(summary.tokens, "token"),
        rate.join(", "),
    )
}

/// Tells what was measured.
fn log_size(size: &BatchSize) {
    let recommended = size.max_batch_tokens;
    if let Some(largest) = size.largest_tokens {
        tracing::info!(
            "{largest} tokens fit at once ({}, {} without enough memory); batches of {recommended} leave room for other programs",
            plural(size.tries, "computation"),
            size.out_of_memory,
        );
    } else {
        tracing::debug!("no GPU to probe; default batch size {recommended} tokens");
    }
}
