//! A report for people.

use super::stages::percent;
use super::{GpuSummary, Report, RunSummary, Throughput};
use crate::event::Outcome;

/// The report in sentences, one a line, the most telling first.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(events) = &report.events {
        if events.runs.is_empty() {
            lines.push("the event log holds no run".to_owned());
        }
        for run in &events.runs {
            lines.push(work(run));
            lines.extend(run.stages.advice.clone());
            lines.extend(run.queue.advice.map(str::to_owned));
            lines.extend(packing(run));
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
        if samples.torn_last_line {
            lines.push("the last line of the sample log is torn and was left out".to_owned());
        }
    }
    lines
}

fn work(run: &RunSummary) -> String {
    let end = match run.outcome {
        Some(Outcome::Done) => "done",
        Some(Outcome::Stopped) => "stopped",
        Some(Outcome::Failed) => "failed",
        None => "no end",
    };
    let time = run
        .elapsed_s
        .map_or_else(String::new, |elapsed_s| format!(" in {elapsed_s:.2} s"));
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
        "run {}: {end}, {} sequences, {} tokens{time}{rates}",
        run.run, run.sequences, run.tokens
    )
}

fn packing(run: &RunSummary) -> Option<String> {
    let packing = &run.packing;
    Some(format!(
        "{} (mean {}, least {}; {} of {} below 85 %)",
        packing.advice?,
        percent(packing.mean_utilization?),
        percent(packing.min_utilization?),
        packing.below_85,
        packing.batches
    ))
}

fn gpu(gpu: &GpuSummary) -> String {
    let index = gpu
        .index
        .map_or_else(|| "?".to_owned(), |index| index.to_string());
    let name = gpu.name.as_deref().unwrap_or("unknown");
    let said = match (&gpu.advice, gpu.mean_utilization) {
        (Some(advice), _) => advice.clone(),
        (None, Some(mean)) => format!(
            "mean utilization {}, {} samples",
            percent(mean),
            gpu.samples
        ),
        (None, None) => "the driver gives no utilization".to_owned(),
    };
    format!("gpu {index} ({name}): {said}")
}
