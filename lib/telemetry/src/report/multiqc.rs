//! A report for `MultiQC`: its custom content, one table with a row for each run.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::text::outcome;
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
        "headers": headers(),
        "data": data,
    })
}

/// Returns the columns. The order of an object is lost, so each has its place: first what people look at first.
fn headers() -> Value {
    let placed = COLUMNS.iter().enumerate().map(|(place, column)| {
        let (key, title, description, format, shown) = *column;
        let mut header = json!({
            "title": title,
            "description": description,
            "placement": 10 * (place + 1),
            "hidden": !shown,
        });
        let mut set = |name: &str, value: Value| header[name] = value;
        match format {
            Format::Outcome => {
                set("scale", false.into());
                set(
                    "cond_formatting_rules",
                    json!({
                        "pass": [{ "s_eq": "done" }],
                        "warn": [{ "s_eq": "stopped" }, { "s_eq": "no end" }],
                        "fail": [{ "s_eq": "failed" }],
                    }),
                );
            }
            Format::Text => set("scale", false.into()),
            Format::Number(decimals, scale) => {
                set("format", format!("{{:,.{decimals}f}}").into());
                set("scale", scale.into());
                set("min", 0.into());
            }
            Format::Percent(scale) => {
                set("format", "{:,.1f}".into());
                set("suffix", " %".into());
                set("scale", scale.into());
                set("min", 0.into());
                set("max", 100.into());
            }
        }
        (key.to_owned(), header)
    });
    Value::Object(placed.collect())
}

/// How a column looks: a number has its decimals, and a colour scale of `ColorBrewer`.
#[derive(Clone, Copy)]
enum Format {
    Outcome,
    Text,
    Number(u8, &'static str),
    Percent(&'static str),
}

/// Amounts that are neither good nor bad.
const AMOUNT: &str = "Blues";
const MORE_IS_BETTER: &str = "RdYlGn";
const LESS_IS_BETTER: &str = "RdYlGn-rev";
/// For numbers that should be 0.
const LOSS: &str = "Reds";

/// Key, title, description, format, and whether it is shown at first.
type Column = (&'static str, &'static str, &'static str, Format, bool);

#[rustfmt::skip]
const COLUMNS: [Column; 16] = [
    ("outcome", "End", "How the run ended", Format::Outcome, true),
    ("sequences", "Sequences", "Sequences embedded", Format::Number(0, AMOUNT), true),
    ("tokens_per_s", "Tokens/s", "Tokens a second over the run", Format::Number(0, "Greens"), true),
    ("idle_percent", "Idle", "Share of the run in which the device had no work: waits, gaps between batches, the start; the target is 5 %", Format::Percent(LESS_IS_BETTER), true),
    ("packing_percent", "Packing", "Mean share of a batch's token budget that was used, last batches left out", Format::Percent(MORE_IS_BETTER), true),
    ("mfu_percent", "MFU", "Model FLOPs utilization: operations on real tokens over the peak of the devices", Format::Percent(MORE_IS_BETTER), true),
    ("gpu_percent", "GPU", "Mean utilization over the GPUs of the run", Format::Percent(MORE_IS_BETTER), true),
    ("rejected", "Rejected", "Sequences that could not be embedded", Format::Number(0, LOSS), true),
    ("mj_per_residue", "mJ/residue", "Energy that the GPUs used for each residue, in millijoules", Format::Number(3, LESS_IS_BETTER), true),
    ("waiting_percent", "Waiting", "Share of the run in which the device waited for batches", Format::Percent(LESS_IS_BETTER), false),
    ("compute_percent", "Computing", "Share of the run in which the device computed", Format::Percent(MORE_IS_BETTER), false),
    ("sequences_per_s", "Sequences/s", "Sequences a second over the run", Format::Number(1, "Greens"), false),
    ("residues_per_s", "Residues/s", "Residues a second over the run", Format::Number(0, "Greens"), false),
    ("cpu_percent", "CPU", "Mean utilization of the host's CPUs", Format::Percent(AMOUNT), false),
    ("host", "Host", "The machine of the run", Format::Text, false),
    ("gpu", "GPUs", "The GPUs of the run", Format::Text, false),
];

fn run_cells(run: &RunSummary) -> [(&'static str, Value); 15] {
    let compute = run.stages.compute.as_ref().and_then(|stage| stage.share);
    let residues_per_j = run.efficiency.residues_per_joule.filter(|&rate| rate > 0.0);
    let gpus = run.gpus.iter().flatten();
    [
        ("outcome", outcome(run.outcome).into()),
        ("sequences", run.sequences.into()),
        ("sequences_per_s", run.throughput.sequences_per_s.into()),
        ("tokens_per_s", run.throughput.tokens_per_s.into()),
        ("residues_per_s", run.throughput.residues_per_s.into()),
        ("compute_percent", hundred(compute)),
        ("idle_percent", hundred(run.idle.map(|idle| idle.share))),
        (
            "waiting_percent",
            hundred(run.idle.map(|idle| idle.waiting)),
        ),
        ("packing_percent", hundred(run.packing.mean_utilization)),
        ("mfu_percent", hundred(run.efficiency.mfu)),
        (
            "mj_per_residue",
            residues_per_j.map(|rate| 1000.0 / rate).into(),
        ),
        ("rejected", run.rejected.into()),
        (
            "gpu_percent",
            hundred(mean(gpus.map(|gpu| gpu.mean_utilization))),
        ),
        ("host", run.host.clone().into()),
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
