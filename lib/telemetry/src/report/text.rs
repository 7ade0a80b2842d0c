//! The report in sentences.

use plmkit_contract::{LIST_SHOWN, one_line, plural};

use super::verdict::in_words;
use super::{
    GpuSummary, HostSummary, Repeats, Report, RunSummary, SampleTotals, WorkerSummary, joined,
    percent,
};
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
            let workers = run.by_worker.iter().filter(|_| run.by_worker.len() > 1);
            lines.extend(workers.map(WorkerSummary::sentence));
            lines.extend(run.notes.iter().cloned());
        }
        lines.extend(events.by_sample.iter().filter_map(SampleTotals::sentence));
        lines.extend(events.repeats.iter().filter_map(Repeats::sentence));
        lines.extend(events.torn_last_line.then(|| torn("event")));
    }
    if let Some(samples) = &report.samples {
        lines.extend(samples.gpus.iter().map(gpu));
        lines.extend(samples.hosts.iter().filter_map(HostSummary::sentence));
        lines.extend(samples.notes.iter().cloned());
        lines.extend(samples.torn_last_line.then(|| torn("sample")));
    }
    lines.extend(report.skipped.iter().map(ToString::to_string));
    lines.extend(report.findings.iter().map(ToString::to_string));
    lines.extend(report.baseline.iter().map(ToString::to_string));
    if let Some(verdict) = report.verdict {
        lines.push(format!("verdict: {verdict}: {}", in_words(report)));
    }
    // Names of runs and GPUs come from a log, which may contain anything.
    let printable = lines.iter().map(|line| one_line(line, LIST_SHOWN));
    printable.collect()
}

fn work(run: &RunSummary) -> String {
    let (sequences, tokens) = (run.sequences, run.tokens);
    let (sequences, tokens) = (plural(sequences, "sequence"), plural(tokens, "token"));
    let end = outcome(run.outcome);
    let work = format!("run {}: {end}, {sequences}, {tokens}", run.run);
    let time = run.elapsed_s.map(|time_s| format!(" in {time_s:.2} s"));
    let rates = &run.throughput;
    let residues = rates.sequences_per_s.zip(rates.residues_per_s);
    let rates = residues.zip(rates.tokens_per_s);
    let rates = rates.map(|((sequences, residues), tokens)| {
        format!(": {sequences:.1} sequences/s, {residues:.0} residues/s, {tokens:.0} tokens/s")
    });
    let load = run.load_s;
    let load = load.map(|load_s| format!(", after {load_s:.2} s of loading the model"));
    joined([Some(work), time, rates, load], "")
}

/// Returns in a word how a run ended.
pub(super) fn outcome(outcome: Option<Outcome>) -> &'static str {
    outcome.map_or("no end", Into::into)
}

fn efficiency(run: &RunSummary) -> Option<String> {
    let figures = &run.efficiency;
    let mfu = figures.mfu.map(|mfu| format!("MFU {}", percent(mfu)));
    let residues = figures.residues_per_joule;
    let residues = residues.map(|rate| format!("{rate:.2} residues/J"));
    let power = figures.mean_power_w.map(|watts| format!("{watts:.0} W"));
    Some(joined([mfu, residues, power], ", ")).filter(|line| !line.is_empty())
}

fn gpu(gpu: &GpuSummary) -> String {
    let name = gpu.label();
    let covered = gpu.figures.coverage.map(percent);
    let covered = covered.map(|share| format!(" over {share} of the time"));
    let lost = if gpu.lost { ", lost" } else { "" };
    let samples =
        plural(gpu.figures.samples, "sample") + covered.as_deref().unwrap_or_default() + lost;
    match (
        gpu.figures.mean_utilization,
        gpu.figures.values.get("gpu_util"),
    ) {
        (Some(mean), _) => format!("{name}: mean utilization {}, {samples}", percent(mean)),
        (None, Some(_)) => format!("{name}: too few samples for its figures, {samples}"),
        (None, None) if gpu.figures.samples == 0 => format!("{name}: no samples{lost}"),
        (None, None) => format!("{name}: the driver gives no utilization{lost}"),
    }
}
