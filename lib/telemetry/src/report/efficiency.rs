//! What the work cost, compared with the peak of the devices.

use serde::Serialize;

use super::run::RunSummary;
use super::run_gpu::RunGpu;
use super::share;
use crate::devices::peak_flops_per_s;

/// What the work cost, compared with the peak of the devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Efficiency {
    /// Floating-point operations of the batches, on real tokens. A multiplication and an addition are two.
    pub flops: Option<f64>,
    /// Peak rate of all devices of the run together, in floating-point operations a second.
    pub peak_flops_per_s: Option<f64>,
    /// Model FLOPs utilisation, 0 to 1: operations over elapsed time over the peak (`PaLM`, arXiv 2204.02311, appendix B).
    pub mfu: Option<f64>,
    /// Mean power draw of all GPUs of the run together, in watts.
    pub mean_power_w: Option<f64>,
    /// Energy of all GPUs over the run's time, in joules: see [`Energy`](super::Energy).
    pub energy_j: Option<f64>,
    /// Energy that was seen, in joules, without what was not seen: with any coverage, of the GPUs that are known.
    pub measured_energy_j: Option<f64>,
    /// Residues for each joule.
    pub residues_per_joule: Option<f64>,
}

impl Efficiency {
    /// Computes the efficiency of a run on `gpus`, if known. `peak_tflops` is a measured peak of each device, in 1e12
    /// operations a second; it replaces the peak that belongs to the device's name.
    pub(super) fn new(run: &RunSummary, gpus: Option<&[RunGpu]>, peak_tflops: Option<f64>) -> Self {
        let peak_flops_per_s = match peak_tflops {
            Some(tera) => device_count(run, gpus).map(|count| tera * 1e12 * count as f64),
            None => named_peak(run, gpus),
        };
        let of_all = |figure: fn(&RunGpu) -> Option<f64>| gpus.and_then(|gpus| sum(gpus, figure));
        let energy_j = of_all(|gpu| gpu.energy.total_j);
        let measured = gpus.into_iter().flatten();
        let measured = measured.filter_map(|gpu| gpu.energy.measured_j);
        Self {
            flops: run.flops,
            peak_flops_per_s,
            mfu: share(share(run.flops, run.elapsed_s), peak_flops_per_s),
            mean_power_w: of_all(|gpu| gpu.mean_power_w),
            energy_j,
            measured_energy_j: measured.reduce(|sum, joules| sum + joules),
            residues_per_joule: share(run.residues as f64, energy_j),
        }
    }
}

/// Counts the devices that computed.
fn device_count(run: &RunSummary, gpus: Option<&[RunGpu]>) -> Option<usize> {
    let device = run.device.as_deref()?;
    match gpus {
        Some(gpus) if !gpus.is_empty() => Some(gpus.len()),
        // Without a list of GPUs: `cuda:N` is one, `cuda` an unknown number.
        _ => (device == "cpu" || device.starts_with("cuda:")).then_some(1),
    }
}

fn named_peak(run: &RunSummary, gpus: Option<&[RunGpu]>) -> Option<f64> {
    let dtype = run.dtype.as_deref()?;
    sum(gpus?, |gpu| peak_flops_per_s(gpu.name.as_deref()?, dtype))
}

/// Sums a figure over all GPUs. Returns `None` for no GPU, or if the figure of one is unknown.
fn sum(gpus: &[RunGpu], figure: impl Fn(&RunGpu) -> Option<f64>) -> Option<f64> {
    let sum: f64 = gpus.iter().map(figure).sum::<Option<f64>>()?;
    (!gpus.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{batch, done, started, summaries};

    /// 1e15 operations on 3,000 residues in 10 s.
    fn run(device: &str) -> RunSummary {
        let started = started(|run| {
            run.device = Some(device.to_owned());
            run.dtype = Some("bf16".to_owned());
            run.flops_per_token = Some(200_000_000_000);
            run.flops_per_pair = Some(2_000_000_000);
        });
        let batch = batch(0, |batch| {
            (batch.tokens, batch.residues, batch.pairs) = (4000, 3000, Some(100_000));
        });
        let done = done(|done| (done.tokens, done.elapsed_s) = (4000, 10.0));
        summaries([started, batch, done]).remove(0)
    }

    #[test]
    fn a_measured_peak_needs_a_known_number_of_devices() {
        for (device, gpus, peak, mfu) in [
            (
                "cuda",
                Some(vec![RunGpu::default(); 2]),
                Some(200.0),
                Some(0.25),
            ),
            ("cpu", Some(vec![]), None, None),
            ("cpu", Some(vec![]), Some(200.0), Some(0.5)),
            ("cuda:1", None, Some(200.0), Some(0.5)),
            ("cuda", None, Some(200.0), None),
        ] {
            let found = Efficiency::new(&run(device), gpus.as_deref(), peak);
            assert_eq!(found.mfu, mfu, "{device}");
        }
    }

    #[test]
    fn an_impossible_mfu_is_noted() {
        let notes = |peak_tflops| {
            let mut run = run("cuda:0");
            run.notes.clear();
            run.join_gpus(None, Some(peak_tflops));
            run.notes
        };
        assert_eq!(notes(100.0), [""; 0]);
        assert!(notes(99.0)[0].starts_with("an MFU above 100 % cannot be"));
    }
}
