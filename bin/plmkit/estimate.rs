//! What it will cost to embed on GPUs.

use std::num::NonZeroU32;

use plmkit_contract::Manifest;
use plmkit_esm2::{Device, Dtype};
use plmkit_programs::gpu_embed::Session;
use plmkit_programs::monitor_log::{EstimateArgs, estimate_of};

use crate::plan::Sample;
use crate::run::Run;
use crate::sample::SampleFolder;

impl Run {
    /// Tells what it will cost to embed on GPUs, if nothing is embedded yet. A run without an estimate goes on.
    pub(crate) fn estimate(&self, session: &Session, samples: &[&Sample]) {
        let options = &self.options.gpu_embed;
        let is_on_gpu = match options.device {
            Device::Cpu => false,
            Device::Auto => session.engine().info().device_kind() != "cpu",
            _ => true,
        };
        // How many positions are masked is not known here.
        if !is_on_gpu || options.scores_positions.is_some() {
            return;
        }
        let is_new = |sample: &&&Sample| {
            let folder = SampleFolder::new(self, sample);
            let is_new = |manifest: Manifest| {
                let mut shards = manifest.shards.iter();
                !shards.any(|shard| folder.is_embedded(session, shard))
            };
            folder.manifest().is_ok_and(is_new)
        };
        let new = samples.iter().filter(is_new);
        let shards: Vec<_> = new
            .map(|sample| SampleFolder::new(self, sample).path.join("shards"))
            .collect();
        if shards.is_empty() {
            return;
        }
        let dtype = options.dtype.filter(|dtype| *dtype != Dtype::Int8);
        let estimate = estimate_of(EstimateArgs {
            shards,
            model: options.model.clone(),
            report: None,
            gpus: NonZeroU32::MIN,
            dtype: dtype.unwrap_or(Dtype::F16).to_string(),
            tflops: None,
            measured: Vec::new(),
            outputs: options.outputs.clone(),
            store_dtype: options.store_dtype,
        });
        match estimate {
            Ok(said) => said
                .to_string()
                .lines()
                .for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
    }
}
