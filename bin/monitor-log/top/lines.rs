//! A snapshot as plain lines, for scripts and logs.

use plmkit_contract::{LIST_SHOWN, one_line};
use plmkit_logs::GpuSample;
use plmkit_telemetry::live::RunStatus;

use super::text::{batches, device, duration, idle, or_dash, percent, power, queue, rates, state};
use crate::monitor::Snapshot;

/// Returns a line for each GPU, or for the host if there is no GPU, and a line for each run.
pub(super) fn plain(snapshot: &Snapshot) -> String {
    let lines = snapshot.rows.iter().map(row);
    let lines = lines.chain(snapshot.runs.iter().map(run));
    // Names of runs and GPUs may contain anything.
    lines
        .map(|line| one_line(&line, LIST_SHOWN) + "\n")
        .collect()
}

fn row(sample: &GpuSample) -> String {
    let Some(index) = sample.index else {
        let (used, total) = (sample.host_mem_used_mib, sample.host_mem_total_mib);
        let (used, total) = (or_dash(used), or_dash(total));
        let cpu = or_dash(sample.host_cpu_util);
        return format!("host  cpu {cpu} %  mem {used}/{total} MiB");
    };
    let name = or_dash(sample.name.as_ref());
    // Under the line of its GPU.
    let index = index.to_string() + if sample.is_instance() { " mig" } else { "" };
    if !sample.has_values() {
        return format!("gpu {index}  {name}  lost");
    }
    let (power, limit) = power(sample);
    let processes = sample.processes.as_ref().map(|processes| processes.0.len());
    format!(
        "gpu {index}  {name}  util {} %  mem {}/{} MiB  {} C  {power}/{limit} W  {} MHz  throttle {}  processes {}",
        or_dash(sample.gpu_util),
        or_dash(sample.mem_used_mib),
        or_dash(sample.mem_total_mib),
        or_dash(sample.temperature_c),
        or_dash(sample.sm_clock_mhz),
        or_dash(sample.throttle.as_ref()),
        or_dash(processes),
    )
}

fn run(status: &RunStatus) -> String {
    let [tokens, sequences, residues] = rates(status);
    format!(
        "run {}  {}  {}  {}  batches {}  tokens/s {tokens}  sequences/s {sequences}  residues/s {residues}  queue {}  idle {}  packing {}  left {}",
        status.summary.run,
        device(status),
        state(status),
        percent(status.progress.share),
        batches(status),
        queue(status),
        percent(idle(status)),
        percent(status.summary.packing.mean_utilization),
        or_dash(status.progress.eta_s.map(duration)),
    )
}
