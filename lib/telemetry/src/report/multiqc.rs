//! A report for `MultiQC`: its custom content, one table with a row for each run.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Report, RunSummary};
use plmkit_logs::Mean;

/// Returns the report as custom content. Rows are named after `sample`, and after the run if there are several. Unknown
/// values are left out. Without runs, there is one row about the GPUs and the host.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let runs = report.events.iter().flat_map(|events| &events.runs);
    let samples = report.samples.as_ref();
    let cpu = samples.and_then(|samples| samples.host.mean_cpu_utilization);
    let host = ("cpu_percent", hundred(cpu));
    let mut data = Map::new();
    let is_single = runs.clone().count() == 1;
    for run in runs {
        let name = if is_single {
            sample.to_owned()
        } else {
            format!("{sample} {}", run.run)
        };
        let row = run_cells(run).into_iter().chain([host.clone()]);
        data.insert(name, known_cells(row));
    }
    if data.is_empty() {
        let gpus = samples.into_iter().flat_map(|samples| &samples.gpus);
        let gpus = mean(gpus.map(|gpu| gpu.mean_utilization));
        let row = [("gpu_percent", hundred(gpus)), host];
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
            "sequences_per_s": { "title": "Sequences/s", "description": "Sequences a second over the run", "format": "{:,.1f}" },
            "tokens_per_s": { "title": "Tokens/s", "description": "Tokens a second over the run", "format": "{:,.0f}" },
            "residues_per_s": { "title": "Residues/s", "description": "Residues a second over the run", "format": "{:,.0f}", "hidden": true },
            "compute_percent": percent("Computing", "Share of the run in which the device computed"),
            "idle_percent": percent("Idle", "Share of the run in which the device had no work: waits, gaps between batches, the start"),
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

fn run_cells(run: &RunSummary) -> [(&'static str, Value); 11] {
    let compute = run.stages.compute.as_ref().and_then(|stage| stage.share);
    let gpus = run.gpus.iter().flatten();
    [
        ("sequences", run.sequences.into()),
        ("sequences_per_s", run.throughput.sequences_per_s.into()),
        ("tokens_per_s", run.throughput.tokens_per_s.into()),
        ("residues_per_s", run.throughput.residues_per_s.into()),
        ("compute_percent", hundred(compute)),
        ("idle_percent", hundred(run.idle.map(|idle| idle.share))),
        ("packing_percent", hundred(run.packing.mean_utilization)),
        ("mfu_percent", hundred(run.efficiency.mfu)),
        ("residues_per_j", run.efficiency.residues_per_joule.into()),
        (
            "gpu_percent",
            hundred(mean(gpus.map(|gpu| gpu.mean_utilization))),
        ),
        ("gpu", products(run).into()),
    ]
}

/// Returns the products of a run's GPUs, with their numbers if there are several: `2 x NVIDIA L4`.
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

/// Returns the mean of the known values.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut mean = Mean::default();
    mean.extend(values.flatten());
    mean.mean()
}

/// Drops the unknown cells of a row.
fn known_cells(row: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let known = row.into_iter().filter(|(_, value)| !value.is_null());
    known.collect()
}

fn hundred(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}
