//! A report for `MultiQC`: its custom content, one table with a row for each run.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Report, RunSummary};
use plmkit_logs::Mean;

/// The report as custom content. Rows are called `sample`, and where there are several runs, after the run too.
/// What is not known is left out of the table. Without runs the row tells of the GPUs and the host alone.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let runs = report
        .events
        .as_ref()
        .map_or(&[][..], |events| &events.runs);
    let host = host(report);
    let mut data = Map::new();
    for run in runs {
        let name = if runs.len() == 1 {
            sample.to_owned()
        } else {
            format!("{sample} {}", run.run)
        };
        let row = run_cells(run).into_iter().chain([host.clone()]);
        data.insert(name, known_cells(row));
    }
    if runs.is_empty() {
        let row = [("gpu_percent", hundred(gpus(report))), host];
        data.insert(sample.to_owned(), known_cells(row));
    }
    json!({
        "id": "plmkit_monitor",
        "section_name": "plmkit: embedding runs",
        "description": "Throughput, waits and packing of protein language model embedding runs, from run events and GPU samples.",
        "plot_type": "table",
        "pconfig": { "id": "plmkit_monitor_table", "title": "plmkit: embedding runs" },
        "headers": {
            "sequences": { "title": "Sequences", "description": "Sequences embedded", "format": "{:,.0f}" },
            "tokens_per_s": { "title": "Tokens/s", "description": "Tokens a second over the run", "format": "{:,.0f}" },
            "residues_per_s": { "title": "Residues/s", "description": "Residues a second over the run", "format": "{:,.0f}", "hidden": true },
            "compute_percent": percent("Computing", "Share of the run in which the device computed"),
            "starved_percent": percent("Starved", "Share of batches for which the device waited for more than 50 ms"),
            "packing_percent": percent("Packing", "Mean share of a batch's token budget that was used, last batches left out"),
            "mfu_percent": percent("MFU", "Model FLOPs utilization: operations on real tokens over the peak of the devices"),
            "residues_per_j": { "title": "Residues/J", "description": "Residues for each joule that the GPUs used", "format": "{:,.2f}", "min": 0 },
            "gpu_percent": percent("GPU", "Mean utilization over the GPUs of the run"),
            "gpu": { "title": "GPUs", "description": "The GPUs of the run", "hidden": true },
            "cpu_percent": percent("CPU", "Mean utilization of the host's CPUs"),
        },
        "data": data,
    })
}

fn percent(title: &str, description: &str) -> Value {
    json!({ "title": title, "description": description, "suffix": " %", "format": "{:,.1f}", "min": 0, "max": 100 })
}

fn run_cells(run: &RunSummary) -> Vec<(&'static str, Value)> {
    let queue = &run.queue;
    let starved = (queue.batches > 0).then(|| queue.starved as f64 / queue.batches as f64);
    let compute = run.stages.compute.as_ref().and_then(|stage| stage.share);
    vec![
        ("sequences", run.sequences.into()),
        ("tokens_per_s", run.throughput.tokens_per_s.into()),
        ("residues_per_s", run.throughput.residues_per_s.into()),
        ("compute_percent", hundred(compute)),
        ("starved_percent", hundred(starved)),
        ("packing_percent", hundred(run.packing.mean_utilization)),
        ("mfu_percent", hundred(run.efficiency.mfu)),
        ("residues_per_j", run.efficiency.residues_per_joule.into()),
        (
            "gpu_percent",
            hundred(mean(
                run.gpus.iter().flatten().map(|gpu| gpu.mean_utilization),
            )),
        ),
        ("gpu", products(run).into()),
    ]
}

/// The products of a run's GPUs, each with its number if there are several: `2 x NVIDIA L4`.
fn products(run: &RunSummary) -> Option<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for gpu in run.gpus.iter().flatten() {
        *counts.entry(gpu.name.as_deref()?).or_default() += 1;
    }
    let named = counts.into_iter().map(|(name, count)| match count {
        1 => name.to_owned(),
        count => format!("{count} x {name}"),
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Mean utilisation of the GPUs of a report without runs.
fn gpus(report: &Report) -> Option<f64> {
    let gpus = report.samples.iter().flat_map(|samples| &samples.gpus);
    mean(gpus.map(|gpu| gpu.mean_utilization))
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut mean = Mean::default();
    values.flatten().for_each(|value| mean.add(value));
    mean.mean()
}

fn host(report: &Report) -> (&'static str, Value) {
    let samples = report.samples.as_ref();
    let cpu = samples.and_then(|samples| samples.host.mean_cpu_utilization);
    ("cpu_percent", hundred(cpu))
}

/// The cells of a row that are known.
fn known_cells(row: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let known = row.into_iter().filter(|(_, value)| !value.is_null());
    let cells: Map<String, Value> = known
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    cells.into()
}

fn hundred(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}
