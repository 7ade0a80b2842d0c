//! The report in sentences.

use plmkit_kit::{LIST_SHOWN, one_line};
use plmkit_page::{Column, words};

use super::tables::{GPUS, LABEL_OF_GPU, RUNS};
use super::{Report, RunSummary};

/// Returns the report in sentences, one a line: the work, the GPUs, and the findings.
pub fn sentences(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.runs.as_ref().is_some_and(Vec::is_empty) {
        lines.push("the event log holds no run".to_owned());
    }
    for run in report.runs() {
        lines.push(format!("run {}: {}", run.name, sentence(run, &RUNS)));
        lines.extend(details(run));
    }
    let sum = report.sum.iter();
    lines.extend(sum.map(|sum| format!("{}: {}", sum.name, sentence(sum, &RUNS))));
    lines.extend(report.gpus().iter().map(|gpu| {
        let figures = sentence(gpu, &GPUS[LABEL_OF_GPU..]);
        format!("{}: {figures}", gpu.label())
    }));
    lines.extend(report.torn_lines());
    lines.extend(report.findings.iter().map(ToString::to_string));
    let (_, verdict, reasons) = report.headline();
    lines.push(format!("{verdict}: {reasons}"));
    // Names of runs and GPUs come from a log, which may contain anything.
    let printable = lines.iter().map(|line| one_line(line, LIST_SHOWN));
    printable.collect()
}

/// Returns the known figures of a row in a sentence: `tokens 2,890, time 12.50 s`.
fn sentence<T>(row: &T, columns: &[Column<T>]) -> String {
    words(row, columns).join(", ")
}

/// Returns what no table has: waits, lengths, memory, and the notes.
pub(super) fn details(run: &RunSummary) -> Vec<String> {
    let total = &run.total;
    let parts = [
        total.stages.get("wait").map(|waits| {
            let (mean, max) = (waits.ms / total.batches.max(1) as f64, waits.max_ms);
            format!("waits of {mean:.2} ms on average, the longest of {max:.2} ms")
        }),
        total.longest.zip(run.mean_length).map(|(longest, mean)| {
            format!("sequences of {mean:.1} tokens on average, the longest of {longest}")
        }),
        total
            .device_memory_peak_mib
            .map(|mib| format!("tensors held at most {mib} MiB of device memory")),
        run.load_s
            .map(|load_s| format!("loading the model took {load_s:.2} s before it")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let figures = Some(parts.join("; ")).filter(|line| !line.is_empty());
    figures
        .into_iter()
        .chain(run.notes.iter().cloned())
        .collect()
}
