//! What the work cost, compared with the peak of the devices.

use plmkit_logs::Mean;
use serde::Serialize;

use super::attempt::AttemptSummary;
use super::gpu::RunGpu;
use super::run::RunSummary;
use super::share;
use super::times::micros;
use crate::devices::peak_flops_per_s;

/// What the work cost, compared with the peak of the devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// operations a second; it replaces the peak that belongs to the device's name. Attempts count by their time.
    pub(super) fn new(run: &RunSummary, gpus: Option<&[RunGpu]>, peak_tflops: Option<f64>) -> Self {
        let peak_flops_per_s = mean(run, |attempt| {
            if let Some(tera) = peak_tflops {
                let peak = tera * 1e12 * device_count(attempt, gpus)? as f64;
                return Some(peak).filter(|peak| peak.is_finite());
            }
            let dtype = attempt.dtype.as_deref()?;
            sum(attempt, gpus?, |gpu| {
                peak_flops_per_s(gpu.name.as_deref()?, dtype)
            })
        });
        let on_gpus = |attempt: &AttemptSummary| attempt.gpu_count() != Some(0);
        let is_whole = run.by_attempt.iter().all(on_gpus);
        let energy_j = gpus.filter(|gpus| is_whole && !gpus.is_empty());
        let energy_j = energy_j.and_then(|gpus| gpus.iter().map(|gpu| gpu.energy.total_j).sum());
        let measured = gpus.into_iter().flatten();
        let measured = measured.filter_map(|gpu| gpu.energy.measured_j);
        Self {
            flops: run.flops,
            peak_flops_per_s,
            // A percentage has to be a number, too.
            mfu: share(share(run.flops, run.elapsed_s), peak_flops_per_s)
                .filter(|mfu| (100.0 * mfu).is_finite()),
            mean_power_w: mean(run, |attempt| {
                sum(attempt, gpus?, |gpu| gpu.figures.mean_power_w)
            }),
            energy_j,
            measured_energy_j: measured.reduce(|sum, joules| sum + joules),
            residues_per_joule: share(run.residues as f64, energy_j),
        }
    }
}

/// Returns the mean of a figure over the time of the attempts; `None` if that of one is unknown.
fn mean(run: &RunSummary, figure: impl Fn(&AttemptSummary) -> Option<f64>) -> Option<f64> {
    let mut mean = Mean::default();
    for attempt in &run.by_attempt {
        let us = micros(attempt.elapsed_s.unwrap_or(0.0));
        // An attempt that was killed before its first batch took no known time.
        if us > 0 || run.by_attempt.len() == 1 {
            mean.add_weighted(figure(attempt)?, us.max(1));
        }
    }
    mean.mean()
}

/// Counts the devices of an attempt.
fn device_count(attempt: &AttemptSummary, gpus: Option<&[RunGpu]>) -> Option<usize> {
    match (attempt.gpu_count(), gpus) {
        (Some(0), _) => Some(1),
        // Without its own list: those of the log. `cuda:N` is one, `cuda` an unknown number.
        (_, Some(gpus)) if attempt.gpu_uuids.is_none() && !gpus.is_empty() => Some(gpus.len()),
        (count, _) => count,
    }
}

/// Sums a figure over the GPUs of an attempt: those that it names, or else all. Returns `None` for no GPU, or if the figure of one
/// is unknown.
fn sum(
    attempt: &AttemptSummary,
    gpus: &[RunGpu],
    figure: impl Fn(&RunGpu) -> Option<f64>,
) -> Option<f64> {
    let is_own = |gpu: &&RunGpu| {
        let named = attempt.gpu_uuids.as_ref().zip(gpu.uuid.as_ref());
        named.is_none_or(|(named, uuid)| named.binary_search(uuid).is_ok())
    };
    let own = gpus.iter().filter(|_| attempt.gpu_count() != Some(0));
    let mut figures = own.filter(is_own).map(figure).peekable();
    figures.peek()?;
    figures.sum()
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
