//! The report in sentences.

use plmkit_contract::{LIST_SHOWN, one_line, plural};

use super::findings::gpu_name;
use super::stages::percent;
use super::{GpuSummary, Repeats, Report, RunSummary, SampleTotals};
use plmkit_logs::event::Outcome;

/// Returns the report in sentences, one a line: the work, the GPUs and the host, and the findings.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let torn = |log| format!("the last line of the {log} log is torn and was left out");
    if let Some(events) = &report.events {
        if events.runs.is_empty() {
            lines.push("the event log holds no run".to_owned());
        }
        for run in &events.runs {
            lines.push(work(run));
            lines.extend(efficiency(run));
            lines.extend(run.stages.advice.clone());
            lines.extend(run.remarks());
            lines.extend(run.notes.iter().cloned());
        }
        lines.extend(events.by_sample.iter().filter_map(SampleTotals::sentence));
        lines.extend(events.repeats.iter().filter_map(Repeats::sentence));
        lines.extend(events.torn_last_line.then(|| torn("event")));
    }
    if let Some(samples) = &report.samples {
        lines.extend(samples.gpus.iter().map(gpu));
        let host = &samples.host;
        let cpu = host.mean_cpu_utilization.map(percent);
        lines.extend(cpu.map(|cpu| format!("host: mean CPU utilization {cpu}")));
        let memory = host.peak_mem_used_mib.zip(host.mem_total_mib);
        lines
            .extend(memory.map(|(used, total)| {
                format!("host: {used} of {total} MiB of memory used at most")
            }));
        lines.extend(samples.notes.iter().cloned());
        lines.extend(samples.torn_last_line.then(|| torn("sample")));
    }
    lines.extend(report.skipped.iter().map(ToString::to_string));
    lines.extend(report.findings.iter().map(ToString::to_string));
    // Names of runs and GPUs come from a log, which may contain anything.
    let printable = lines.iter().map(|line| one_line(line, LIST_SHOWN));
    printable.collect()
}

fn work(run: &RunSummary) -> String {
    let mut parts = vec![format!(
        "run {}: {}, {}, {}",
        run.run,
        outcome(run.outcome),
        plural(run.sequences, "sequence"),
        plural(run.tokens, "token")
    )];
    let elapsed_s = run.elapsed_s;
    parts.extend(elapsed_s.map(|elapsed_s| format!(" in {elapsed_s:.2} s")));
    let rates = &run.throughput;
    let residues = rates.sequences_per_s.zip(rates.residues_per_s);
    let all = residues.zip(rates.tokens_per_s);
    parts.extend(all.map(|((sequences, residues), tokens)| {
        format!(": {sequences:.1} sequences/s, {residues:.0} residues/s, {tokens:.0} tokens/s")
    }));
    let load_s = run.load_s;
    parts.extend(load_s.map(|load_s| format!(", after {load_s:.2} s of loading the model")));
    parts.concat()
}

/// Returns in a word how a run ended.
pub(super) fn outcome(outcome: Option<Outcome>) -> &'static str {
    outcome.map_or("no end", Into::into)
}

fn efficiency(run: &RunSummary) -> Option<String> {
    let figures = &run.efficiency;
    let known = [
        figures.mfu.map(|mfu| format!("MFU {}", percent(mfu))),
        figures
            .residues_per_joule
            .map(|rate| format!("{rate:.2} residues/J")),
        figures.mean_power_w.map(|watts| format!("{watts:.0} W")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn gpu(gpu: &GpuSummary) -> String {
    let name = gpu_name(gpu.index, gpu.name.as_deref());
    let Some(mean) = gpu.mean_utilization else {
        return format!("{name}: the driver gives no utilization");
    };
    let samples = plural(gpu.samples, "sample");
    format!("{name}: mean utilization {}, {samples}", percent(mean))
}
