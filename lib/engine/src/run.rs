//! One run, from a claimed output to a published one.

use std::time::Instant;

use plmkit_esm2::{Dtype, Esm2, LoadTimes};
use plmkit_kit::{Stop, path_text};
use plmkit_logs::event::{Outcome, RunStarted, milliseconds};
use plmkit_store::AtomicFile;
use serde_json::json;

use crate::checkpoint::{OutputBlocks, RunFolder, remove_checkpoint};
use crate::embedder::Embedder;
use crate::error::EngineError;
use crate::event_log::EventLog;
use crate::outcome::{EmbedSummary, RunOutcome, RunProgress};
use crate::parity::Parity;
use crate::parity_sample::ParitySample;
use crate::pipeline;
use crate::rejects_list;
use crate::work::Work;

impl Work<'_> {
    /// Computes what is not saved, and publishes the output. Files to replace are removed only after everything that can refuse the
    /// run. `loaded` is `None` unless this run loaded the model.
    pub(crate) fn embed(
        &self,
        folder: &RunFolder,
        model: &Esm2,
        loaded: Option<LoadTimes>,
        stop: &Stop,
        report: &mut dyn FnMut(RunProgress),
    ) -> Result<RunOutcome, EngineError> {
        let (config, job, inputs) = (self.config, self.job, self.inputs);
        let mut blocks = OutputBlocks::load(folder, self, stop)?;
        let claim = AtomicFile::create(&job.out)?;
        let rejects = rejects_list::begin(job, folder)?;
        let before = Instant::now();
        let parity = self.check_parity(model, stop)?;
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
            output: job.out.file_name().map(|name| name.display().to_string()),
            ..self.started(model.info(), loaded, &to_compute)
        };
        let mut events = EventLog::start(job.events.as_deref(), started)?;
        if loaded.is_some() {
            config.compute.device.log_if_cpu();
        }
        report(RunProgress::Started {
            tokens: inputs.total.tokens,
            saved: inputs.workload(|index| index < first).tokens,
        });
        let mut embedder = Embedder::new(config, &self.layout.columns, model, stop);
        let computed = pipeline::run(self, &mut embedder, &mut blocks, &mut events, report);
        report(RunProgress::Ended);
        let rejected_rows = blocks.rejected();
        let rejected = rejected_rows.len() as u64;
        // The event is about the whole output, rejects of earlier runs included.
        events.rejected = rejected;
        if computed.is_ok() && blocks.batches < batches {
            events.end(Outcome::Stopped);
            let saved = blocks.for_next_run();
            return Ok(RunOutcome::Stopped { saved, batches });
        }
        let published = computed.and_then(|()| {
            if let Some(tokens) = embedder.limit.nothing_fits() {
                let device = &model.info().device;
                return Err(EngineError::out_of_memory(format!(
                    "{device}: not even a sequence of {tokens} tokens fits: another program takes the memory, or it is too small for this model"
                )));
            }
            blocks.folder.check()?;
            // The rejects list first.
            let digest = rejects_list::publish(job, blocks.folder, rejects, rejected_rows)?;
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
            saved_batches: batches - events.total.batches,
            in_f32: events.total.recomputed,
            tokens: events.total.tokens,
            tiers,
            columns: self.layout.columns.clone(),
            widths: self.layout.widths(),
            elapsed: events.elapsed(),
        }))
    }

    /// Compares a model in 8 bits with f32 on a sample, if there is anything to embed. Refuses the run if they differ too much.
    fn check_parity(&self, model: &Esm2, stop: &Stop) -> Result<Option<Parity>, EngineError> {
        let dtype = model.info().dtype;
        if !dtype.is_quantised() {
            return Ok(None);
        }
        let outputs = &self.config.outputs;
        let sample = ParitySample::draw(self.inputs, outputs.logits || outputs.scores.is_some())?;
        if sample.is_empty() {
            return Ok(None);
        }
        tracing::debug!("{dtype}: comparing with f32 on a sample");
        let parity = sample.measure(model, stop)?;
        if !parity.suffices() {
            let model = path_text(&self.config.model);
            let advice = match dtype {
                _ if parity.sequences == 0 => "",
                // A device that computes fp8 computes f16, which is nearer to f32.
                Dtype::Fp8 => "; try --dtype f16 or f32",
                _ => "; try --dtype bf16 or f32",
            };
            let what = format_args!("--dtype {dtype} is refused: {parity}{advice}");
            return Err(EngineError::data(model, what));
        }
        tracing::info!("{dtype}: {parity}");
        Ok(Some(parity))
    }
}
