//! One snapshot as plain lines, for scripts and logs.

use plmkit_contract::{LIST_SHOWN, one_line};
use plmkit_logs::GpuSample;
use plmkit_telemetry::live::RunStatus;

use super::text::{batches, duration, or_dash, percent, queue, short, state};
use crate::monitor::Snapshot;

/// A line for each GPU, or for the host where there is no GPU, and a line for each run.
pub(super) fn plain(snapshot: &Snapshot) -> String {
    let rows = snapshot.rows.iter().map(row);
    // Names of runs and GPUs may hold anything.
    let printable = |line: String| one_line(&line, LIST_SHOWN) + "\n";
    rows.chain(snapshot.runs.iter().map(run))
        .map(printable)
        .collect()
}

fn row(sample: &GpuSample) -> String {
    let Some(index) = sample.index else {
        return format!(
            "host  cpu {} %  mem {}/{} MiB",
            or_dash(sample.host_cpu_util.as_ref()),
            or_dash(sample.host_mem_used_mib.as_ref()),
            or_dash(sample.host_mem_total_mib.as_ref()),
        );
    };
    let processes = sample.processes.as_ref().map(|processes| processes.0.len());
    format!(
        "gpu {index}  {}  util {} %  mem {}/{} MiB  {} C  {}/{} W  {} MHz  throttle {}  processes {}",
        or_dash(sample.name.as_ref()),
        or_dash(sample.gpu_util.as_ref()),
        or_dash(sample.mem_used_mib.as_ref()),
        or_dash(sample.mem_total_mib.as_ref()),
        or_dash(sample.temperature_c.as_ref()),
        or_dash(sample.power_w.map(f64::round).as_ref()),
        or_dash(sample.power_limit_w.map(f64::round).as_ref()),
        or_dash(sample.sm_clock_mhz.as_ref()),
        or_dash(sample.throttle.as_ref()),
        or_dash(processes.as_ref()),
    )
}

fn run(status: &RunStatus) -> String {
    let run = &status.summary;
    format!(
        "run {}  {} {}  {}  {}  batches {}  tokens/s {}  residues/s {}  queue {}  packing {}  left {}",
        run.run,
        or_dash(run.device.as_ref()),
        or_dash(run.dtype.as_ref()),
        state(status),
        percent(status.progress.share),
        batches(status),
        short(status.recent.tokens_per_s.or(run.throughput.tokens_per_s)),
        short(
            status
                .recent
                .residues_per_s
                .or(run.throughput.residues_per_s)
        ),
        queue(status),
        percent(run.packing.mean_utilization),
        or_dash(status.progress.eta_s.map(duration).as_ref()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut sample = GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap());
        assert_eq!(row(&sample), "host  cpu - %  mem -/- MiB");
        sample.index = Some(1);
        sample.gpu_util = Some(0);
        sample.power_w = Some(61.7);
        assert_eq!(
            row(&sample),
            "gpu 1  -  util 0 %  mem -/- MiB  - C  62/- W  - MHz  throttle -  processes -"
        );
    }
}
