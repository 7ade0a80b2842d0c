//! One run, from opened inputs to a published output.

use std::ops::Range;
use std::time::Instant;

use plmkit_contract::{
    ByteDigest, Column, EmbeddingLayout, Exit, KERNELS, Kind, LOGIT_TOKENS, PACKING, Provenance,
    SCORES, SCORES_POSITIONS, Stop, WINDOWS, path_text,
};
use plmkit_esm2::{Device, Dtype, ModelInfo, WorkerGpu, cuda_version, driver_version, set_threads};
use plmkit_logs::event::{Outcome, RunStarted, milliseconds};
use plmkit_store::{AtomicFile, StoreError, find_existing};
use serde_json::{Value, json};

use crate::checkpoint::{Blocks, RunFolder, remove_checkpoint};
use crate::claim::claim_output;
use crate::columns::ROW_BYTES;
use crate::embedder::Embedder;
use crate::event_log::EventLog;
use crate::inputs::{RunInputs, Workload};
use crate::masking::Masking;
use crate::parity::Parity;
use crate::pipeline::{self, Compute};
use crate::rejects_list;
use crate::sample::ParitySample;
use crate::workers::WorkerPool;
use crate::{EmbedSummary, EngineError, RunConfig, RunOutcome, RunProgress};

/// Embeds every sequence of the batches files into one embeddings file, and reports progress.
pub fn embed(
    config: &RunConfig,
    stop: &Stop,
    report: &mut dyn FnMut(RunProgress),
) -> Result<RunOutcome, EngineError> {
    // A driver may hang, so this comes before the claim. Quick checks come before those that may take minutes.
    stop.interruptible(|| config.compute.check())?;
    // A complete output can be verified where nothing can be written, so other errors wait.
    let claim = || RunFolder::claim(&config.out, config.checkpoint_dir.as_deref());
    let claimed = match claim_output(config, stop, claim) {
        Err(refused @ (StoreError::Busy { .. } | StoreError::Stopped)) => {
            return Err(refused.into());
        }
        claimed => claimed,
    };
    let inputs = RunInputs::open(config, stop)?;
    if inputs.stitched() && config.outputs.contacts {
        let what = "--contacts: pairs of residues that no window holds have none; take --windows separate, or shards without \
                    --long-policy window";
        return Err(EngineError::new(Exit::Usage, what));
    }
    let mut computing = start_computing(config, &inputs, stop)?;
    let info = computing.info().clone();
    info.check_length(&config.model, inputs.longest)?;
    let layout = config.layout(&info, (inputs.stitched(), inputs.labels))?;
    let bytes = |column: &Column| {
        column.values(inputs.longest, layout.widths()) * config.store_dtype.bytes()
    };
    if layout
        .columns
        .iter()
        .any(|column| bytes(column) > ROW_BYTES)
    {
        tracing::warn!(
            "a row of a column holds at most 2 GiB: longer sequences, such as one of {} residues, are rejected",
            inputs.longest
        );
    }
    let provenance = provenance(config, &inputs, &info, &layout)?;
    inputs.check_known(&provenance.options)?;
    let work = Work {
        config,
        blocks: inputs.blocks(&layout),
        inputs: &inputs,
        info: &info,
        layout: &layout,
        provenance: &provenance,
    };
    if !config.force
        && let Some((found, digest)) =
            find_existing(&config.out, Kind::Embeddings, &provenance, stop)?
    {
        if let Ok(folder) = claimed {
            folder.clean_up(&work)?;
        }
        let rows = digest.rows();
        let rejected = inputs.rows.saturating_sub(rows);
        rejects_list::verify(config, found.rejects.as_deref(), rejected)?;
        return Ok(RunOutcome::AlreadyComplete { rows, rejected });
    }
    let folder = claimed?;
    let blocks = Blocks::load(&folder, &work, stop)?;
    let outcome = work.embed(blocks, &mut *computing, report);
    let outcome = match (outcome, folder.check()) {
        // Whatever it failed of: its files are those of another run, or gone.
        (Err(_), Err(lost)) => return Err(lost.into()),
        (outcome, _) => outcome?,
    };
    if let RunOutcome::Done(_) = outcome {
        folder.clean_up(&work)?;
    }
    Ok(outcome)
}

/// Loads the model in this process or in workers.
fn start_computing<'a>(
    config: &'a RunConfig,
    inputs: &RunInputs,
    stop: &'a Stop,
) -> Result<Box<dyn Compute + 'a>, EngineError> {
    let devices = match (config.compute.device, config.workers) {
        (Device::All, _) => Device::each_gpu()?,
        (device, Some(count)) => {
            let visible = None;
            vec![WorkerGpu { device, visible }; count.get()]
        }
        (_, None) => {
            set_threads(config.threads);
            let model = Embedder::load(config, inputs.largest_batch, stop)?;
            return Ok(Box::new(model));
        }
    };
    let pool = WorkerPool::start(config, devices, inputs, stop)?;
    Ok(Box::new(pool))
}

/// The facts of a run that are known before the computation.
pub(crate) struct Work<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) inputs: &'a RunInputs,
    /// The blocks of the output.
    pub(crate) blocks: Vec<Range<u64>>,
    info: &'a ModelInfo,
    pub(crate) layout: &'a EmbeddingLayout,
    pub(crate) provenance: &'a Provenance,
}

impl Work<'_> {
    /// Whether a block of the output ends after so many batches.
    pub(crate) fn ends_block(&self, batches: u64) -> bool {
        let ends = |block: &Range<u64>| block.end;
        self.blocks.binary_search_by_key(&batches, ends).is_ok()
    }

    /// Computes what is not saved, and publishes the output. Files to replace are removed only after everything that can refuse the
    /// run.
    fn embed(
        &self,
        mut blocks: Blocks<'_>,
        computing: &mut dyn Compute,
        report: &mut dyn FnMut(RunProgress),
    ) -> Result<RunOutcome, EngineError> {
        let (config, inputs) = (self.config, self.inputs);
        let claim = AtomicFile::create(&config.out)?;
        let rejects = rejects_list::begin(config, blocks.folder)?;
        let before = Instant::now();
        let parity = check_parity(config, inputs, self.info, computing)?;
        let compared = parity.map(|_| before.elapsed());
        for path in &blocks.to_replace {
            remove_checkpoint(path)?;
        }
        let (first, parts) = (blocks.batches, &blocks.parts);
        let to_compute = inputs.workload(|index| {
            index >= first && !parts.iter().any(|part| part.batches.contains(&index))
        });
        let batches = inputs.total.batches;
        let saved_before = batches - to_compute.batches;
        let started = RunStarted {
            batches_saved: (saved_before > 0).then_some(saved_before),
            compare_ms: compared.map(milliseconds),
            ..self.started(computing, &to_compute)
        };
        let mut events = EventLog::start(config.events.as_deref(), started)?;
        config.compute.device.log_if_cpu();
        report(RunProgress::Started {
            tokens: inputs.total.tokens,
            saved: inputs.workload(|index| index < first).tokens,
        });
        let computed = pipeline::run(self, computing, (&mut blocks, &mut events), report);
        report(RunProgress::Ended);
        let rejected_rows = blocks.rejected();
        let rejected = rejected_rows.len() as u64;
        // The event is about the whole output, rejects of earlier runs included.
        events.done.rejected = rejected;
        if computed.is_ok() && blocks.batches < batches {
            events.end(Outcome::Stopped);
            let saved = blocks.for_next_run();
            return Ok(RunOutcome::Stopped { saved, batches });
        }
        let published = computed.and_then(|()| {
            blocks.folder.check()?;
            // The rejects list first.
            let digest = rejects_list::publish(config, blocks.folder, rejects, rejected_rows)?;
            let provenance = self
                .provenance
                .clone()
                .with_rejects(digest)
                .with_model(config.model_name.clone())
                .with_parity(parity.map(|parity| json!(parity)));
            Ok(blocks.publish(&provenance, claim)?.rows())
        });
        if published.is_err() {
            // The first error is the one to report.
            let _ = blocks.keep();
        }
        let tiers = events.end(match published {
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Failed,
        });
        Ok(RunOutcome::Done(EmbedSummary {
            rows: published?,
            truncated: inputs.truncated,
            rejected,
            batches,
            saved_batches: batches - events.batches,
            in_f32: events.recomputed,
            tokens: events.done.tokens,
            tiers,
            columns: self.layout.columns.clone(),
            widths: self.layout.widths(),
            elapsed: events.elapsed(),
        }))
    }

    /// Describes the model and the work `to_compute` for the first event.
    fn started(&self, computing: &dyn Compute, to_compute: &Workload) -> RunStarted {
        let (config, inputs, info) = (self.config, self.inputs, self.info);
        let workers = computing.workers();
        // All GPUs, or the device that was selected.
        let device = match config.compute.device {
            Device::All => Ok(Device::All),
            _ => info.device.parse(),
        };
        let gpus = device.map_or_else(|_| Vec::new(), Device::gpus);
        let on_gpu = !gpus.is_empty();
        RunStarted {
            job: Some(job_name(self.provenance)),
            tool: "gpu-embed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model_digest: Some(info.checkpoint.digest.clone()),
            model: Some(config.model_name.name.clone()),
            model_revision: config.model_name.revision.clone(),
            // Each worker has a device of this kind.
            device: Some(match &workers {
                Some(_) => info.device_kind().to_owned(),
                None => info.device.clone(),
            }),
            workers: workers.as_ref().map(|workers| workers.len() as u64),
            worker_gpus: workers.and_then(|workers| workers.iter().map(WorkerGpu::uuid).collect()),
            batches_total: Some(to_compute.batches),
            sequences_total: Some(to_compute.sequences),
            tokens_total: Some(to_compute.tokens),
            sample: inputs.sample().map(str::to_owned),
            driver_version: on_gpu.then(driver_version).flatten(),
            cuda_version: on_gpu.then(cuda_version).flatten(),
            gpu_names: on_gpu.then(|| gpus.iter().map(|gpu| gpu.name.clone()).collect()),
            gpu_uuids: gpus
                .into_iter()
                .map(|gpu| gpu.uuid)
                .collect::<Option<_>>()
                .filter(|_| on_gpu),
            pid: Some(std::process::id()),
            flops_per_token: Some(info.config().shape().flops_per_token()),
            flops_per_pair: Some(info.config().shape().flops_per_pair()),
            dtype: Some(info.dtype.to_string()),
            kernel_set: Some(info.kernels.clone()),
            threads: Some(config.threads.get() as u64),
            token_budget: inputs.token_budget(),
            load_ms: Some(milliseconds(info.load_times.all)),
            compile_ms: info.load_times.compiled.map(milliseconds),
            pin_ms: info.load_times.pinned.map(milliseconds),
            ..RunStarted::default()
        }
    }
}

/// Returns the lasting name of the work, which a resumed run shares with the interrupted one. Kernels are not part of the name: a
/// run with other kernels computes the same work again.
fn job_name(provenance: &Provenance) -> String {
    let mut options = provenance.options.clone();
    options.remove(KERNELS);
    let work = json!([provenance.inputs, options]);
    ByteDigest::compute(work.to_string().as_bytes()).to_string()
}

/// Lists everything that decides the content of the output. Threads, prefetch and file names do not.
fn provenance(
    config: &RunConfig,
    inputs: &RunInputs,
    info: &ModelInfo,
    layout: &EmbeddingLayout,
) -> Result<Provenance, EngineError> {
    let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
    let digests = inputs.files.iter().map(|file| file.digest().to_string());
    let packings = inputs.files.iter().map(|file| file.packing().to_string());
    let packings: Vec<String> = packings.collect();
    let mut provenance = Provenance::new("gpu-embed", digests.collect())
        .with(PACKING, packings)
        .with("model", info.checkpoint.digest.as_str())
        .with("columns", columns)
        .with("dtype", info.dtype.to_string())
        .with("device", info.device_kind())
        .with(KERNELS, info.kernels.as_str())
        .with("store_dtype", config.store_dtype.to_string());
    let positions = inputs.masking.as_ref().and_then(Masking::digest);
    let has_logits = layout.columns.contains(&Column::Logits);
    let optional = [
        (
            WINDOWS,
            inputs.windows.map(|windows| windows.to_string().into()),
        ),
        (
            SCORES,
            config
                .outputs
                .scores
                .map(|scores| scores.to_string().into()),
        ),
        (SCORES_POSITIONS, positions.map(Value::from)),
        (
            LOGIT_TOKENS,
            has_logits.then(|| json!(info.config().logit_tokens())),
        ),
    ];
    let optional = optional.into_iter();
    let optional = optional.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    provenance.options.extend(inputs.origin.clone());
    provenance.options.extend(optional);
    // The digest of a model covers the encoder only.
    for (head, digest) in info.heads_for(&config.model, &layout.columns)? {
        provenance = provenance.with(head.name(), digest);
    }
    Ok(provenance)
}

/// Compares an int8 model with f32 on a sample, if there is anything to embed. Refuses the run if they differ too much.
fn check_parity(
    config: &RunConfig,
    inputs: &RunInputs,
    info: &ModelInfo,
    computing: &mut dyn Compute,
) -> Result<Option<Parity>, EngineError> {
    if info.dtype != Dtype::Int8 {
        return Ok(None);
    }
    let sample = ParitySample::draw(
        inputs,
        config.outputs.logits || config.outputs.scores.is_some(),
    )?;
    if sample.is_empty() {
        return Ok(None);
    }
    tracing::debug!("int8: comparing with f32 on a sample");
    let parity = computing.measure_parity(sample)?;
    if !parity.suffices() {
        let model = path_text(&config.model);
        let what = format_args!("--dtype int8 is refused: {parity}; try --dtype bf16 or f32");
        return Err(EngineError::data(model, what));
    }
    tracing::info!("int8: {parity}");
    Ok(Some(parity))
}
