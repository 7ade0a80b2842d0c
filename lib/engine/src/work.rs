//! The work of one output, as it is known before anything is computed.

use std::ops::Range;

use plmkit_contract::{ByteDigest, EmbeddingLayout, KERNELS, Provenance};
use plmkit_esm2::{Device, LoadTimes, ModelInfo, cuda_version, driver_version};
use plmkit_logs::event::{RunStarted, milliseconds};
use serde_json::json;

use crate::config::{Job, RunConfig};
use crate::inputs::{RunInputs, Workload};

/// The work of one output, as it is known before anything is computed.
pub(crate) struct Work<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) job: &'a Job,
    pub(crate) inputs: &'a RunInputs,
    /// The blocks of the output.
    pub(crate) blocks: Vec<Range<u64>>,
    pub(crate) layout: &'a EmbeddingLayout,
    pub(crate) provenance: Provenance,
}

impl Work<'_> {
    /// Whether a block of the output ends after so many batches.
    pub(crate) fn ends_block(&self, batches: u64) -> bool {
        let ends = |block: &Range<u64>| block.end;
        self.blocks.binary_search_by_key(&batches, ends).is_ok()
    }

    /// Describes the model and the work `to_compute` for the first event. `loaded` is `None` unless this run loaded the model.
    pub(crate) fn started(
        &self,
        info: &ModelInfo,
        loaded: Option<LoadTimes>,
        to_compute: &Workload,
    ) -> RunStarted {
        let (config, inputs) = (self.config, self.inputs);
        let gpus = info
            .device
            .parse()
            .map_or_else(|_| Vec::new(), Device::gpus);
        let on_gpu = !gpus.is_empty();
        RunStarted {
            job: Some(job_name(&self.provenance)),
            tool: "gpu-embed".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model_digest: Some(info.checkpoint.digest.clone()),
            model: Some(config.model_name.name.clone()),
            model_revision: config.model_name.revision.clone(),
            device: Some(info.device.clone()),
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
            load_ms: loaded.map(|times| milliseconds(times.all)),
            compile_ms: loaded.and_then(|times| times.compiled).map(milliseconds),
            pin_ms: loaded.and_then(|times| times.pinned).map(milliseconds),
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
