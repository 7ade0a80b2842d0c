//! A model and what is computed with it, for any number of outputs.

use std::sync::Arc;

use plmkit_contract::{
    Column, DESCRIPTION, EmbeddingLayout, EmbeddingWork, KERNELS, Kind, LOGIT_TOKENS, PACKING,
    Provenance, SAMPLE, SCORES, SCORES_POSITIONS, SOURCE, VOCABULARY, WINDOWS, Widths,
};
use plmkit_esm2::{Device, ModelInfo, set_threads};
use plmkit_kit::{Fault, Stop};
use plmkit_store::{StoreError, identify, verify};

use crate::checkpoint::RunFolder;
use crate::claim::claim_output;
use crate::columns::ROW_BYTES;
use crate::config::{Job, RunConfig, Windows};
use crate::error::EngineError;
use crate::inputs::RunInputs;
use crate::masking::Masking;
use crate::model::Model;
use crate::outcome::{RunOutcome, RunProgress};
use crate::rejects_list;
use crate::work::Work;

/// A model and the options of its outputs. The model is in memory from the first job that computes until the engine is dropped.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: RunConfig,
    pub(crate) model: Model,
    /// Whether a CPU computes.
    pub(crate) on_cpu: bool,
    /// The residues to mask, if any are.
    masking: Option<Arc<Masking>>,
    /// What decides the content of every output, apart from its inputs and whether they have windows.
    pub(crate) provenance: Provenance,
}

impl Engine {
    /// Describes the model, and checks that it has the outputs of `config`. Nothing is loaded.
    pub fn new(config: RunConfig, stop: &Stop) -> Result<Self, EngineError> {
        // A driver may hang.
        let on_cpu = stop.interruptible(|| config.compute.is_cpu())?;
        set_threads(config.threads);
        let model = Model::describe(&config, stop)?;
        let masking = Masking::of(&config)?.map(Arc::new);
        let provenance = provenance(&config, &model, masking.as_deref())?;
        Ok(Self {
            config,
            model,
            on_cpu,
            masking,
            provenance,
        })
    }

    /// Takes the device and the type that are not given for given: what was made otherwise is other work.
    pub fn pin_device_and_type(&mut self) {
        let compute = &mut self.config.compute;
        compute.dtype = Some(self.model.described.dtype);
        if self.on_cpu {
            compute.device = Device::Cpu;
        }
    }

    /// Frees the model, which is loaded again if it is needed.
    pub fn unload(&mut self) {
        self.model.unload();
    }

    /// Writes the file of digests, if there is one: the next engine need not hash the model. A file that cannot be written costs time
    /// only.
    pub fn write_digests(&self) {
        if let Some(path) = &self.config.digests {
            self.model.write_digests(path);
        }
    }

    /// The facts about the model, without the time of loading.
    pub fn info(&self) -> &ModelInfo {
        &self.model.described
    }

    /// Describes the first difference between embeddings of this provenance and those that this engine would make of the same shard,
    /// however packed; `None` if there is none.
    pub fn difference(&self, found: &Provenance) -> Option<String> {
        let has_windows = found.options.contains_key(WINDOWS);
        let mut expected = self.provenance_for(has_windows.then_some(self.config.windows));
        let of_shard = [SAMPLE, DESCRIPTION, SOURCE];
        self.accept(&mut expected, found, &of_shard);
        found.dataset_difference(&expected)
    }

    /// Describes the first difference between the work of known embeddings, which is expected, and that of this engine.
    pub fn known_difference(&self, known: &EmbeddingWork) -> Option<String> {
        let windows = known.has_windows().then_some(self.config.windows);
        known.difference(&EmbeddingWork::new(&self.provenance_for(windows).options))
    }

    /// What decides the content of an output, apart from its inputs.
    fn provenance_for(&self, windows: Option<Windows>) -> Provenance {
        let provenance = self.provenance.clone();
        match windows {
            Some(windows) => provenance.with(WINDOWS, windows.to_string()),
            None => provenance,
        }
    }

    /// Takes over what `found` records of the device and the type, unless the options name them, and of the `others`.
    fn accept(&self, expected: &mut Provenance, found: &Provenance, others: &[&str]) {
        let compute = &self.config.compute;
        let device = (compute.device == Device::Auto).then_some(DEVICE);
        let dtype = compute.dtype.is_none().then_some(DTYPE);
        for name in device.iter().chain(&dtype).chain(others) {
            if let Some(value) = found.options.get(*name) {
                expected.options.insert((*name).to_owned(), value.clone());
            }
        }
    }

    /// Embeds every sequence of the batches files of `job` into one embeddings file, and reports progress. A complete output is
    /// verified and kept. Other outputs that exist are refused, without `force`. Both are known before the model is loaded. A library
    /// for GPUs polls the `stop` of the job that loaded the model, so all jobs should have the same.
    pub fn embed(
        &mut self,
        job: &Job,
        stop: &Stop,
        report: &mut dyn FnMut(RunProgress),
    ) -> Result<RunOutcome, EngineError> {
        let (config, info) = (&self.config, &self.model.described);
        self.model.check_device(config, stop)?;
        // A complete output can be verified where nothing can be written, so other errors wait.
        let claim = || RunFolder::claim(&job.out, job.checkpoint_dir.as_deref());
        let claimed = match claim_output(job.wait, stop, claim) {
            Err(refused @ (StoreError::Busy { .. } | StoreError::Stopped)) => {
                return Err(refused.into());
            }
            claimed => claimed,
        };
        let inputs = RunInputs::open(config, &job.batches, self.masking.clone(), stop)?;
        if inputs.stitched() && config.outputs.contacts {
            let what = "--contacts: pairs of residues that no window holds have none; take --windows separate, or shards without \
                        --long-policy window";
            return Err(Fault::usage(what).into());
        }
        info.check_length(&config.model, inputs.longest)?;
        let columns = self.model.columns.clone();
        let Widths { dim, logits } = info.config().widths();
        let has_logits = columns.contains(&Column::Logits);
        let layout = EmbeddingLayout {
            columns,
            dim,
            logits: if has_logits { logits } else { VOCABULARY },
            dtype: config.store_dtype,
            stitched: inputs.stitched(),
            labels: inputs.labels,
        };
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
        let mut provenance = self.provenance_for(inputs.windows);
        let files = inputs.files.iter();
        provenance.inputs = files
            .clone()
            .map(|file| file.digest().to_string())
            .collect();
        let packings: Vec<String> = files.map(|file| file.packing().to_string()).collect();
        provenance.options.extend(inputs.origin.clone());
        let provenance = provenance.with(PACKING, packings);
        let mut accepted = provenance.clone();
        let difference = |found: &Provenance| {
            self.accept(&mut accepted, found, &[]);
            found.difference(&accepted)
        };
        let mut found = None;
        if !job.force {
            found = identify(&job.out, Kind::Embeddings, difference)?;
        }
        let mut work = Work {
            config,
            job,
            blocks: inputs.blocks(&layout),
            inputs: &inputs,
            layout: &layout,
            provenance: accepted,
        };
        if let Some(found) = found {
            let rows = verify(&job.out, Kind::Embeddings, stop)?.rows();
            if let Ok(folder) = claimed {
                folder.clean_up(&work)?;
            }
            let rejected = inputs.rows.saturating_sub(rows);
            rejects_list::verify(job, found.rejects.as_deref(), rejected)?;
            return Ok(RunOutcome::AlreadyComplete { rows, rejected });
        }
        inputs.check_known(&provenance.options)?;
        let folder = claimed?;
        let (model, loaded) = self.model.load(config, inputs.largest_batch, stop)?;
        // Those of a GPU may not compile.
        work.provenance = provenance.with(KERNELS, model.info().kernels.as_str());
        let outcome = work.embed(&folder, model, loaded, stop, report);
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
}

/// The options of an embeddings file that name the device and the type of the computation.
const DEVICE: &str = "device";
const DTYPE: &str = "dtype";

/// Lists what decides the content of every output of an engine. Threads, prefetch and file names do not.
fn provenance(
    config: &RunConfig,
    model: &Model,
    masking: Option<&Masking>,
) -> Result<Provenance, EngineError> {
    let (info, columns) = (&model.described, &model.columns);
    let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
    let mut provenance = Provenance::new("gpu-embed", Vec::new())
        .with("model", info.checkpoint.digest.as_str())
        .with("columns", names)
        .with(DTYPE, info.dtype.to_string())
        .with(DEVICE, info.device_kind())
        .with(KERNELS, info.kernels.as_str())
        .with("store_dtype", config.store_dtype.to_string());
    if let Some(scores) = config.outputs.scores {
        provenance = provenance.with(SCORES, scores.to_string());
    }
    if let Some(positions) = masking.and_then(Masking::digest) {
        provenance = provenance.with(SCORES_POSITIONS, positions);
    }
    if columns.contains(&Column::Logits) {
        provenance = provenance.with(LOGIT_TOKENS, info.config().logit_tokens());
    }
    // The digest of a model covers the encoder only.
    for (head, digest) in info.heads_for(&config.model, columns)? {
        provenance = provenance.with(head.name(), digest);
    }
    Ok(provenance)
}
