//! One run, from opened files to a published one.

use std::ops::Range;
use std::time::Instant;

use plmkit_contract::{
    ByteDigest, EmbeddingLayout, KERNELS, PACKING, Provenance, Reject, Stop, WINDOWS,
};
use plmkit_esm2::{Device, Dtype, EsmError, WorkerGpu, set_threads};
use plmkit_logs::event::{Outcome, RunStarted, milliseconds};
use plmkit_store::{AtomicFile, Existing, StoreError, existing_embeddings};

use crate::backend::Backend;
use crate::checkpoint::{Blocks, RunFolder, Saved, SavedBlocks, remove_file};
use crate::claim::claim_output;
use crate::event_log::EventLog;
use crate::in_process::InProcess;
use crate::inputs::RunInputs;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::rejects_list::{self, RejectsList};
use crate::sample::Sample;
use crate::workers::WorkerPool;
use crate::writer::Writer;
use crate::{EngineError, Progress, RunConfig, RunOutcome, RunSummary, pipeline};

/// Embeds every sequence of the batches files into one embeddings file, and reports how far it is.
pub fn embed(
    config: &RunConfig,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
) -> Result<RunOutcome, EngineError> {
    // Before the output is claimed: a driver may hang. What takes no time to see comes before what may take minutes.
    let usable = stop.interruptible(|| config.device.check());
    usable.map_err(EsmError::from)?;
    // An output that is complete can be looked at where nothing can be written.
    let claim = || RunFolder::claim(&config.out, config.checkpoint_dir.as_deref());
    let claimed = match claim_output(config, stop, claim) {
        Err(refused @ (StoreError::Busy { .. } | StoreError::Stopped)) => {
            return Err(refused.into());
        }
        claimed => claimed,
    };
    let inputs = RunInputs::open(&config.batches, config.windows, stop)?;
    if inputs.stitched() && config.outputs.contacts {
        return Err(EngineError::Contacts);
    }
    let (mut backend, info) = start_backend(config, &inputs, stop)?;
    let layout = info.layout(config, (inputs.stitched(), inputs.labels))?;
    let provenance = provenance(config, &inputs, &info, &layout);
    if !config.force
        && let Some(Existing { digest, rejects }) =
            existing_embeddings(&config.out, &provenance, stop)?
    {
        if let Ok(folder) = claimed {
            folder.clear(&provenance, &layout)?;
        }
        let rejected = inputs.rows.saturating_sub(digest.rows());
        rejects_list::verify(config, rejects.as_deref(), rejected)?;
        return Ok(RunOutcome::AlreadyComplete {
            rows: digest.rows(),
            rejected,
        });
    }
    let folder = claimed?;
    let saved = Saved::take_over(&folder, config, &inputs, (&provenance, &layout), stop)?;
    let run = Run {
        config,
        inputs: &inputs,
        blocks: &inputs.blocks(&layout),
        info: &info,
        layout: &layout,
        provenance: &provenance,
    };
    let outcome = run.embed(&folder, &mut *backend, saved, report);
    let outcome = outcome.map_err(|error| folder.explain(error))?;
    if let RunOutcome::Done(_) = outcome {
        folder.clear(&provenance, &layout)?;
    }
    Ok(outcome)
}

/// Loads the model for the batches of `inputs`.
fn start_backend<'a>(
    config: &'a RunConfig,
    inputs: &RunInputs,
    stop: &'a Stop,
) -> Result<(Box<dyn Backend + 'a>, ModelInfo), EngineError> {
    let devices = match (config.device, config.workers) {
        (Device::All, _) => Device::each_gpu().map_err(EsmError::from)?,
        (device, Some(count)) => vec![
            WorkerGpu {
                device,
                visible: None
            };
            count.get()
        ],
        (_, None) => {
            set_threads(config.threads);
            let model = InProcess::load(config, inputs.largest_batch(), stop)?;
            let info = model.info()?;
            return Ok((Box::new(model), info));
        }
    };
    let (pool, info) = WorkerPool::start(config, devices, inputs, stop)?;
    Ok((Box::new(pool), info))
}

/// What a run works with.
struct Run<'a> {
    config: &'a RunConfig,
    inputs: &'a RunInputs,
    /// Those of the output.
    blocks: &'a [Range<u64>],
    info: &'a ModelInfo,
    layout: &'a EmbeddingLayout,
    provenance: &'a Provenance,
}

/// What becomes the output and its list.
struct Publication<'a> {
    claim: AtomicFile,
    rejects: RejectsList<'a>,
    parity: Option<Parity>,
}

impl<'a> Run<'a> {
    /// Computes what is not saved, and publishes the output. What is replaced goes when nothing stands in the way.
    fn embed(
        &self,
        folder: &'a RunFolder,
        backend: &mut dyn Backend,
        saved: Saved,
        report: &mut dyn FnMut(Progress),
    ) -> Result<RunOutcome, EngineError> {
        let (config, inputs) = (self.config, self.inputs);
        let claim = AtomicFile::create(&config.out)?;
        let rejects = RejectsList::begin(config, folder)?;
        let before = Instant::now();
        let parity = check_parity(config, inputs, self.info, backend)?;
        let compared = parity.map(|_| before.elapsed());
        let Saved {
            blocks,
            parts,
            replaced,
        } = saved;
        replaced.iter().try_for_each(|path| remove_file(path))?;
        let first = blocks.as_ref().map_or(0, SavedBlocks::end);
        let in_parts = parts.iter().map(|part| part.batches.clone());
        let ranges: Vec<Range<u64>> = std::iter::once(0..first).chain(in_parts).collect();
        let to_compute = inputs.workload_without(&ranges);
        let batches_saved = inputs.total.batches - to_compute.batches;
        let workers = backend.workers();
        let started = RunStarted {
            // Each worker has a device of the kind.
            device: Some(match workers {
                Some(_) => self.info.device_kind().to_owned(),
                None => self.info.device.clone(),
            }),
            workers,
            batches_total: Some(to_compute.batches),
            sequences_total: Some(to_compute.sequences),
            tokens_total: Some(to_compute.tokens),
            batches_saved: (batches_saved > 0).then_some(batches_saved),
            compare_ms: compared.map(milliseconds),
            ..self.started()
        };
        let in_blocks = blocks.as_ref().map(|saved| saved.rejects(inputs));
        let mut writer = Writer {
            layout: self.layout,
            rejects: in_blocks.transpose()?.unwrap_or_default(),
            blocks: Blocks::new(
                (folder, config),
                (self.provenance, self.layout),
                self.blocks,
                blocks.map(|saved| (saved.file, saved.blocks)),
                parts.iter().map(|part| part.batches.start).collect(),
            ),
            events: EventLog::start(config.events.as_deref(), started)?,
            batches: first,
            saved_batches: first,
            in_f32: 0,
        };
        config.device.log_if_cpu();
        report(Progress::Started {
            tokens: inputs.total.tokens,
        });
        report(Progress::Advanced {
            tokens: inputs.tokens_before(first),
        });
        let stages = (inputs, parts);
        let computed = pipeline::run(stages, config.prefetch, backend, &mut writer, report);
        report(Progress::Ended);
        let publication = Publication {
            claim,
            rejects,
            parity,
        };
        self.end(writer, publication, batches_saved, computed)
    }

    /// What the first event says of the model and its inputs.
    fn started(&self) -> RunStarted {
        let (config, inputs, info) = (self.config, self.inputs, self.info);
        // Of all workers, or the one that was chosen.
        let device = match config.device {
            Device::All => Ok(Device::All),
            _ => info.device.parse(),
        };
        RunStarted {
            job: Some(job_name(self.provenance)),
            tool: "gpu-embed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model_digest: Some(info.digest.clone()),
            model: Some(config.model_name.name.clone()),
            model_revision: config.model_name.revision.clone(),
            sample: inputs.sample().map(str::to_owned),
            gpu_uuids: device.ok().and_then(Device::gpu_uuids),
            pid: Some(std::process::id()),
            flops_per_token: Some(info.flops_per_token),
            flops_per_pair: Some(info.flops_per_pair),
            dtype: Some(info.dtype.to_string()),
            threads: Some(config.threads.get() as u64),
            token_budget: inputs.token_budget(),
            load_ms: Some(milliseconds(info.load_times.all)),
            compile_ms: info.load_times.compiled.map(milliseconds),
            pin_ms: info.load_times.pinned.map(milliseconds),
            ..RunStarted::default()
        }
    }

    /// Publishes what is complete and says how it ended. `saved_before` batches were in parts when the run began.
    fn end(
        &self,
        mut writer: Writer<'_>,
        publication: Publication<'_>,
        saved_before: u64,
        computed: Result<(), EngineError>,
    ) -> Result<RunOutcome, EngineError> {
        let mut events = writer.events;
        let rejected = writer.rejects.len() as u64;
        // Those of an earlier run, too: the event speaks of the whole output.
        events.done.rejected = rejected;
        let published = match computed {
            Ok(()) if writer.batches < self.inputs.total.batches => {
                events.end(Outcome::Stopped);
                return Ok(RunOutcome::Stopped {
                    saved: (writer.batches - writer.blocks.unsaved()).max(saved_before),
                    batches: self.inputs.total.batches,
                });
            }
            Ok(()) => self.publish(&mut writer.blocks, publication, writer.rejects),
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The first error is the one to report.
            let _ = writer.blocks.keep();
        }
        events.end(match published {
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Failed,
        });
        Ok(RunOutcome::Done(RunSummary {
            rows: published?,
            truncated: self.inputs.truncated,
            rejected,
            batches: writer.batches,
            saved_batches: writer.saved_batches,
            in_f32: writer.in_f32,
            tokens: events.done.tokens,
            columns: self.layout.columns.clone(),
            dim: self.layout.dim,
            elapsed: events.elapsed(),
        }))
    }

    /// Gives the files their names, the output last. Returns its rows.
    fn publish(
        &self,
        blocks: &mut Blocks<'_>,
        publication: Publication<'_>,
        rejects: Vec<Reject>,
    ) -> Result<u64, EngineError> {
        let provenance = self.provenance.clone();
        let provenance = provenance
            .with_rejects(publication.rejects.publish(rejects)?)
            .with_model(self.config.model_name.clone())
            .with_parity(publication.parity.map(Parity::to_json));
        let written = blocks.publish(&provenance, publication.claim)?;
        Ok(written.digest.rows())
    }
}

/// The lasting name of the work: that of a run that goes on where an interrupted one stopped is the same. Kernels are left out:
/// what other kernels have computed is computed again, as a part of the same work.
fn job_name(provenance: &Provenance) -> String {
    let mut options = provenance.options.clone();
    options.remove(KERNELS);
    let work = serde_json::json!([provenance.inputs, options]);
    ByteDigest::compute(work.to_string().as_bytes()).to_string()
}

/// What the output depends on. Threads, prefetch and the order of files' names are not in it.
fn provenance(
    config: &RunConfig,
    inputs: &RunInputs,
    info: &ModelInfo,
    layout: &EmbeddingLayout,
) -> Provenance {
    let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
    let mut provenance = Provenance::new("gpu-embed", inputs.digests())
        .with(PACKING, inputs.packing())
        .with("model", info.digest.as_str())
        .with("columns", columns)
        .with("dtype", info.dtype.to_string())
        .with("device", info.device_kind())
        .with(KERNELS, info.kernels.as_str())
        .with("store_dtype", config.store_dtype.to_string());
    for (name, value) in &inputs.origin {
        provenance = provenance.with(name, value.clone());
    }
    if let Some(windows) = inputs.windows {
        provenance = provenance.with(WINDOWS, windows.to_string());
    }
    // What is computed with more than the encoder depends on more than its digest.
    for (head, digest) in &info.heads {
        provenance = provenance.with(head, digest.as_str());
    }
    provenance
}

/// Compares int8 with f32, if `backend` computes in int8 and there is anything to embed. Refuses the run where they are too far apart.
fn check_parity(
    config: &RunConfig,
    inputs: &RunInputs,
    info: &ModelInfo,
    backend: &mut dyn Backend,
) -> Result<Option<Parity>, EngineError> {
    if info.dtype != Dtype::Int8 {
        return Ok(None);
    }
    let sample = Sample::draw(inputs)?;
    if sample.is_empty() {
        return Ok(None);
    }
    tracing::debug!(
        "int8: comparing with f32 on a sample of {} tokens",
        sample.tokens()
    );
    let parity = backend.measure(sample)?;
    if parity.suffices() {
        tracing::info!("int8: {parity}");
        Ok(Some(parity))
    } else {
        let model = config.model.clone();
        Err(EngineError::Parity { model, parity })
    }
}
