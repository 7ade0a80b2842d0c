//! What it will cost to embed.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Manifest, ModelShape};
use plmkit_esm2::{ComputeOptions, Device, Dtype, Isa, cpu_rate, set_threads};
use plmkit_estimate::{Lengths, Rates, shares_of_peaks};
use plmkit_programs::gpu_embed::{self, Session};
use plmkit_programs::monitor_log::{
    EstimateArgs, PEAK_SHARE, estimate_by, estimate_of, print_estimate, share_of_peak,
};
use plmkit_sequence::{ShardConfig, read_lengths};

use crate::args::Estimated;
use crate::check::report;
use crate::options::Options;
use crate::plan::{Sample, samples};
use crate::run::Run;
use crate::sample::SampleFolder;

/// The time of the probe of a CPU in one type.
const PROBE: Duration = Duration::from_millis(500);

/// The longest sequences of the probe, in tokens.
const LONGEST: u64 = 4096;

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
        match estimate_of(asked(options, shards, NonZeroU32::MIN)) {
            Ok(said) => said
                .to_string()
                .lines()
                .for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
    }
}

/// What an estimate is asked for, by the options of gpu-embed.
fn asked(options: &gpu_embed::Args, shards: Vec<PathBuf>, gpus: NonZeroU32) -> EstimateArgs {
    let dtype = options.dtype.filter(|dtype| *dtype != Dtype::Int8);
    EstimateArgs {
        shards,
        model: options.model.clone(),
        report: None,
        gpus,
        dtype: dtype.unwrap_or(Dtype::F16).to_string(),
        tflops: None,
        measured: Vec::new(),
        outputs: options.outputs.clone(),
        store_dtype: options.store_dtype,
    }
}

/// Tells what a run of this command line would cost on this machine, and writes no results.
pub(crate) fn estimate(estimated: Estimated, stop: &Stop) -> Result<Exit, Fault> {
    let (args, mut errors) = (estimated.args, Vec::new());
    let options = Options::new(&args, &mut errors)?;
    let samples = samples(&args.inputs, None, stop, &mut errors);
    let (Some(options), true) = (options, errors.is_empty()) else {
        return Err(report(errors));
    };
    let embed = &options.gpu_embed;
    let device = options.of_model(None).device;
    let compute = ComputeOptions {
        device,
        dtype: embed.dtype,
        ..ComputeOptions::default()
    };
    compute.is_cpu()?;
    let uncounted = [
        ("--dedup", args.dedup),
        ("--known", !options.fasta_shard.known.is_empty()),
        ("--scores-positions", embed.scores_positions.is_some()),
    ];
    for (option, _) in uncounted.into_iter().filter(|(_, is_given)| *is_given) {
        tracing::warn!("{option}: the estimate is without it, so it is too high");
    }
    let gpus = embed.device.gpus();
    let count = match embed.device {
        Device::All => u32::try_from(gpus.len()).ok().and_then(NonZeroU32::new),
        _ => None,
    };
    let mut names: Vec<&str> = gpus.iter().map(|gpu| &*gpu.name).collect();
    names.dedup();
    let of_estimate = asked(embed, Vec::new(), count.unwrap_or(NonZeroU32::MIN));
    let dtype = of_estimate.dtype.clone();
    let read = |_: &_| {
        let mut shards = Vec::new();
        for sample in &samples {
            let mut cut = options.of_sample(&args.out, &sample.name);
            cut.inputs.clone_from(&sample.fasta);
            let mut of_sample = BTreeMap::<_, Lengths>::new();
            read_lengths(&ShardConfig::try_from(cut)?, stop, |row| {
                let shard = of_sample.entry(row.shard).or_default();
                shard.add(row.ordinal, row.length, row.residues);
            })?;
            shards.extend(of_sample.into_values());
        }
        Ok((samples.len() as u64, 0, shards))
    };
    let rates = |shape: &ModelShape, shards: &[Lengths]| {
        let mut rates = shares_of_peaks(PEAK_SHARE, &dtype, names.iter().copied());
        let mut sources = Vec::new();
        if rates.len() < names.len() {
            tracing::warn!("{}: a GPU whose peak is not known", names.join(", "));
        }
        if !rates.is_empty() {
            sources.push(share_of_peak(&dtype));
        }
        if matches!(embed.device, Device::Auto | Device::Cpu) {
            sources.insert(0, "the rate of a layer with random weights".to_owned());
            rates.splice(..0, cpu_rates(embed, shape, shards, stop)?);
        }
        Ok(Some((sources.join(" or "), rates)))
    };
    let estimate = estimate_by(of_estimate, read, rates)?;
    print_estimate(&estimate, estimated.report.as_deref())
}

/// Measures the rate of this CPU in each type that it computes, or in the one that is asked for, on sequences as long as those of the
/// average token.
fn cpu_rates(
    embed: &gpu_embed::Args,
    shape: &ModelShape,
    shards: &[Lengths],
    stop: &Stop,
) -> Result<Rates, Fault> {
    let threads = gpu_embed::threads(embed.threads);
    set_threads(threads);
    let sum = |of: fn(&Lengths) -> u64| shards.iter().map(of).sum::<u64>();
    let length = sum(|shard| shard.pairs) / sum(|shard| shard.tokens).max(1);
    let types = [Dtype::F32, Dtype::Bf16, Dtype::Int8].into_iter();
    let is_computed = |dtype: &Dtype| {
        let on_cpu = ComputeOptions {
            device: Device::Cpu,
            dtype: Some(*dtype),
            ..ComputeOptions::default()
        };
        embed.dtype.is_none_or(|asked| asked == *dtype) && on_cpu.check().is_ok()
    };
    let rate = |dtype: Dtype| {
        let kernels = Isa::best().for_weights(dtype);
        let name = format!("this CPU in {dtype} ({kernels}, {threads} threads)");
        let rate = cpu_rate(shape, dtype, length.min(LONGEST) as usize, PROBE, stop)?;
        Ok((name, rate))
    };
    types.filter(is_computed).map(rate).collect()
}
