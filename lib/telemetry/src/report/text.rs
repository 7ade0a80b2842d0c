//! A report for people.

use plmkit_contract::{LIST_SHOWN, one_line, plural};

use super::findings::gpu_name;
use super::stages::percent;
use super::{GpuSummary, Report, RunSummary, Throughput};
use plmkit_logs::event::Outcome;

/// The report in sentences, one a line: what was done, what was seen, and what is worth knowing of it.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(events) = &report.events {
        if events.runs.is_empty() {
            lines.push("the event log holds no run".to_owned());
        }
        for run in &events.runs {
            lines.push(work(run));
            lines.extend(efficiency(run));
            lines.extend(run.stages.advice.clone());
            lines.extend(run.notes.iter().cloned());
        }
        if events.torn_last_line {
            lines.push("the last line of the event log is torn and was left out".to_owned());
        }
    }
    if let Some(samples) = &report.samples {
        lines.extend(samples.gpus.iter().map(gpu));
        let host = &samples.host;
        if let Some(cpu) = host.mean_cpu_utilization {
            lines.push(format!("host: mean CPU utilization {}", percent(cpu)));
        }
        if let Some((used, total)) = host.peak_mem_used_mib.zip(host.mem_total_mib) {
            lines.push(format!(
                "host: {used} of {total} MiB of memory used at most"
            ));
        }
        lines.extend(samples.notes.iter().cloned());
        if samples.torn_last_line {
            lines.push("the last line of the sample log is torn and was left out".to_owned());
        }
    }
    lines.extend(report.findings.iter().map(ToString::to_string));
    // Names of runs and GPUs come from a log, which may hold anything.
    let printable = lines.iter().map(|line| one_line(line, LIST_SHOWN));
    printable.collect()
}

fn work(run: &RunSummary) -> String {
    let end = outcome(run.outcome);
    let time = run
        .elapsed_s
        .map_or_else(String::new, |elapsed_s| format!(" in {elapsed_s:.2} s"));
    let load = run.load_s.map_or_else(String::new, |load_s| {
        format!(", after {load_s:.2} s of loading the model")
    });
    let rates = match &run.throughput {
        Throughput {
            sequences_per_s: Some(sequences),
            residues_per_s: Some(residues),
            tokens_per_s: Some(tokens),
        } => {
            format!(": {sequences:.1} sequences/s, {residues:.0} residues/s, {tokens:.0} tokens/s")
        }
        _ => String::new(),
    };
    format!(
        "run {}: {end}, {}, {}{time}{rates}{load}",
        run.run,
        plural(run.sequences, "sequence"),
        plural(run.tokens, "token")
    )
}

/// How a run ended, in a word.
pub(super) fn outcome(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Done) => "done",
        Some(Outcome::Stopped) => "stopped",
        Some(Outcome::Failed) => "failed",
        None => "no end",
    }
}

fn efficiency(run: &RunSummary) -> Option<String> {
    let figures = [
        run.efficiency
            .mfu
            .map(|mfu| format!("MFU {}", percent(mfu))),
        run.efficiency
            .residues_per_joule
            .map(|rate| format!("{rate:.2} residues/J")),
        run.efficiency
            .mean_power_w
            .map(|watts| format!("{watts:.0} W")),
    ];
    let known: Vec<String> = figures.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn gpu(gpu: &GpuSummary) -> String {
    let said = gpu.mean_utilization.map_or_else(
        || "the driver gives no utilization".to_owned(),
        |mean| {
            format!(
                "mean utilization {}, {}",
                percent(mean),
                plural(gpu.samples, "sample")
            )
        },
    );
    format!("{}: {said}", gpu_name(gpu.index, gpu.name.as_deref()))
}
