//! What it will cost to embed.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::Manifest;
use plmkit_engine::Windows;
use plmkit_esm2::{CPU_DTYPES, Device, Dtype, Isa, cpu_rate, set_threads};
use plmkit_estimate::{Lengths, Rates, shares_of_peaks};
use plmkit_hub::{Settings, resolve};
use plmkit_kit::plural;
use plmkit_programs::gpu_embed::{self, Session};
use plmkit_programs::monitor_log::{self, EstimateArgs, estimate_of};
use plmkit_sequence::{ShardConfig, read_lengths};

use crate::args::Args;
use crate::preflight;
use crate::programs::Programs;
use crate::run::Run;
use crate::sample::SampleFolder;
use crate::samples::{Sample, samples};

/// The time of the probe of a CPU in one type.
const PROBE: Duration = Duration::from_millis(500);

impl Run {
    /// Tells what it will cost to embed on GPUs, if nothing is embedded yet. A run without an estimate goes on.
    pub(crate) fn estimate(&self, session: &Session, samples: &[&Sample]) {
        let args = &self.programs.gpu_embed;
        let is_on_gpu = match args.options.computation.device {
            Device::Cpu => false,
            Device::Auto => session.engine().info().device_kind() != "cpu",
            _ => true,
        };
        // How many positions are masked is not known here.
        if !is_on_gpu || args.options.scores_positions.is_some() {
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
        match estimate_of(asked(args, shards, &self.stop)) {
            Ok(said) => said
                .to_string()
                .lines()
                .for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
    }
}

/// What an estimate is asked for, by the command line of gpu-embed.
fn asked(args: &gpu_embed::Args, shards: Vec<PathBuf>, stop: &Stop) -> EstimateArgs {
    // A model of the Hub that is not a published one is known if it was fetched.
    let is_known = monitor_log::shape(&args.model).is_ok();
    let found = (!is_known).then(|| resolve(&args.model, &Settings::from_env(), None, stop));
    EstimateArgs {
        shards,
        uncut: Vec::new(),
        rates: None,
        model: found
            .and_then(Result::ok)
            .unwrap_or_else(|| args.model.clone()),
        report: None,
        gpus: NonZeroU32::MIN,
        dtype: args.options.computation.dtype.unwrap_or(Dtype::F16),
        measured: Vec::new(),
        outputs: args.options.outputs.clone(),
        store_dtype: args.options.store_dtype,
    }
}

/// Tells what a run of this command line would cost on this machine, and writes no results.
pub(crate) fn estimate(args: &Args, stop: &Stop) -> Result<Exit, Fault> {
    let mut errors = Vec::new();
    let samples = samples(&args.inputs, None, false, stop, &mut errors);
    if !errors.is_empty() {
        return Err(preflight::report(errors));
    }
    let programs = Programs::new(args);
    let how = programs.gpu_embed.compute();
    let may_be_cpu = matches!(how.device, Device::Auto | Device::Cpu);
    if may_be_cpu {
        how.is_cpu()?;
    } else {
        // It may be that of another node.
        how.check_kind()?;
    }
    let mut asked = asked(&programs.gpu_embed, Vec::new(), stop);
    asked.report.clone_from(&args.validate_embeddings.report);
    for sample in &samples {
        let mut cut = programs.shard_args(&args.out, &sample.name);
        cut.inputs.clone_from(&sample.fasta);
        let (mut shards, mut row) = (BTreeMap::<_, Lengths>::new(), 0);
        let cut = ShardConfig::try_from(cut)?;
        read_lengths(&cut, stop, |shard, ordinal, [of, residues]| {
            let (protein, length) = match args.gpu_embed.windows {
                Windows::Stitch => (ordinal, of),
                Windows::Separate => (row, residues),
            };
            row += 1;
            let lengths = shards.entry(shard).or_default();
            lengths.add(protein, length, residues);
        })?;
        asked.uncut.push(shards.into_values().collect());
    }
    let mut rates = Rates::new();
    if may_be_cpu {
        let threads = gpu_embed::threads(args.gpu_embed.computation.threads);
        set_threads(threads);
        let sum = |of: fn(&Lengths) -> u64| asked.uncut.iter().flatten().map(of).sum::<u64>();
        // The sequence of an average token.
        let length = sum(|shard| shard.pairs) / sum(|shard| shard.tokens).max(1);
        let is_asked = |dtype: &Dtype| how.dtype.is_none_or(|asked| asked == *dtype);
        for dtype in CPU_DTYPES.into_iter().filter(is_asked) {
            let kernels = Isa::best().for_weights(dtype);
            let name = format!(
                "this CPU in {dtype} ({kernels}, {})",
                plural(threads.get() as u64, "thread")
            );
            let shape = monitor_log::shape(&asked.model)?;
            rates.push((name, cpu_rate(&shape, dtype, length, PROBE, stop)?));
        }
    }
    let gpus = how.device.gpus();
    let mut names: Vec<&str> = gpus.iter().map(|gpu| &*gpu.name).collect();
    names.dedup();
    asked.gpus = NonZeroU32::new(gpus.len() as u32).unwrap_or(asked.gpus);
    rates.extend(shares_of_peaks(asked.dtype, &names));
    // For none that is known, those of the usual GPUs.
    asked.rates = Some(rates).filter(|rates| !rates.is_empty());
    monitor_log::estimate(asked)
}
