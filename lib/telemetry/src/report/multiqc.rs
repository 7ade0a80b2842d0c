//! A report for `MultiQC`: its custom content, one table with a row for each run, or one for all runs of a sample.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::text::outcome;
use super::{Report, RunSummary, SampleTotals, share};
use plmkit_logs::Mean;

/// Returns the report as custom content. Rows are named after `sample`, and after the run if there are runs of several samples;
/// several runs of one sample are one row. Unknown values are left out. Without runs, there is one row about the GPUs and the
/// host.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let mut data = Map::new();
    let runs = report.runs();
    let mut by_sample = report.events.iter().flat_map(|events| &events.by_sample);
    let totals = by_sample.find(|totals| runs.len() > 1 && totals.runs == runs.len() as u64);
    if let Some(totals) = totals {
        data.insert(sample.to_owned(), known_cells(totals_cells(totals, runs)));
    }
    for run in runs.iter().filter(|_| totals.is_none()) {
        let name = match runs.len() {
            1 => sample.to_owned(),
            _ => format!("{sample} {}", run.run),
        };
        let cells = COLUMNS.iter().map(|&(key, .., value)| (key, value(run)));
        data.insert(name, known_cells(cells));
    }
    if data.is_empty() {
        let gpus = report.gpus().iter().map(|gpu| gpu.figures.mean_utilization);
        let gpus = mean_percent(gpus);
        let hosts = report.samples.iter().flat_map(|samples| &samples.hosts);
        let cpu = mean_percent(hosts.map(|host| host.mean_cpu_utilization));
        let row = known_cells([("gpu_percent", gpus), ("cpu_percent", cpu)]);
        data.insert(sample.to_owned(), row);
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
fn headers() -> Map<String, Value> {
    let columns = COLUMNS.iter().enumerate();
    let headers = columns.map(|(place, &(key, title, description, format, is_shown, _))| {
        let mut header = match format {
            Format::Outcome => json!({
                "scale": false,
                "cond_formatting_rules": {
                    "pass": [{ "s_eq": "done" }],
                    "warn": [{ "s_eq": "stopped" }, { "s_eq": "no end" }],
                    "fail": [{ "s_eq": "failed" }],
                },
            }),
            Format::Text => json!({ "scale": false }),
            Format::Number(decimals, scale) => {
                json!({ "scale": scale, "format": format!("{{:,.{decimals}f}}"), "min": 0 })
            }
            Format::Percent(scale) => {
                json!({ "scale": scale, "format": "{:,.1f}", "suffix": " %", "min": 0, "max": 100 })
            }
        };
        header["title"] = title.into();
        header["description"] = description.into();
        header["placement"] = (10 * (place + 1)).into();
        header["hidden"] = (!is_shown).into();
        (key.to_owned(), header)
    });
    headers.collect()
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

/// Key, title, description, format, whether it is shown at first, and the value of a run.
type Column = (
    &'static str,
    &'static str,
    &'static str,
    Format,
    bool,
    fn(&RunSummary) -> Value,
);

#[rustfmt::skip]
const COLUMNS: [Column; 16] = [
    ("outcome", "End", "How the run ended", Format::Outcome, true, |run| outcome(run.outcome).into()),
    ("sequences", "Sequences", "Sequences embedded", Format::Number(0, AMOUNT), true, |run| run.sequences.into()),
    ("tokens_per_s", "Tokens/s", "Tokens a second over the run", Format::Number(0, "Greens"), true, |run| run.throughput.tokens_per_s.into()),
    ("idle_percent", "Idle", "Share of the run in which the device had no work: waits, gaps between batches, the start; the target is 5 %", Format::Percent(LESS_IS_BETTER), true, |run| hundred(run.idle.map(|idle| idle.share))),
    ("packing_percent", "Packing", "Mean share of a batch's token budget that was used, last batches left out", Format::Percent(MORE_IS_BETTER), true, |run| hundred(run.packing.mean_utilization)),
    ("mfu_percent", "MFU", "Model FLOPs utilization: operations on real tokens over the peak of the devices", Format::Percent(MORE_IS_BETTER), true, |run| hundred(run.efficiency.mfu)),
    ("gpu_percent", "GPU", "Mean utilization over the GPUs of the run", Format::Percent(MORE_IS_BETTER), true, |run| mean_percent(run.gpus.iter().flatten().map(|gpu| gpu.figures.mean_utilization))),
    ("rejected", "Rejected", "Sequences that could not be embedded", Format::Number(0, LOSS), true, |run| run.rejected.into()),
    ("mj_per_residue", "mJ/residue", "Energy that the GPUs used for each residue, in millijoules", Format::Number(3, LESS_IS_BETTER), true, mj_per_residue),
    ("waiting_percent", "Waiting", "Share of the run in which the device waited for batches", Format::Percent(LESS_IS_BETTER), false, |run| hundred(run.idle.map(|idle| idle.waiting))),
    ("compute_percent", "Computing", "Share of the run in which the device computed", Format::Percent(MORE_IS_BETTER), false, |run| hundred(run.stages.compute_share())),
    ("sequences_per_s", "Sequences/s", "Sequences a second over the run", Format::Number(1, "Greens"), false, |run| run.throughput.sequences_per_s.into()),
    ("residues_per_s", "Residues/s", "Residues a second over the run", Format::Number(0, "Greens"), false, |run| run.throughput.residues_per_s.into()),
    ("cpu_percent", "CPU", "Mean utilization of the host's CPUs", Format::Percent(AMOUNT), false, |run| hundred(cpu(run))),
    ("host", "Host", "The machine of the run", Format::Text, false, |run| run.host.clone().into()),
    ("gpu", "GPUs", "The GPUs of the run", Format::Text, false, |run| products(run).into()),
];

fn mj_per_residue(run: &RunSummary) -> Value {
    let rate = run.efficiency.residues_per_joule.filter(|&rate| rate > 0.0);
    rate.map(|rate| 1000.0 / rate).into()
}

/// Returns the row of all `runs` of a sample. It ended as the first of them that was not done.
fn totals_cells(totals: &SampleTotals, runs: &[RunSummary]) -> [(&'static str, Value); 11] {
    let last = runs.iter().find(|run| !run.is_done()).or(runs.last());
    let gpus = runs.iter().flat_map(|run| run.gpus.iter().flatten());
    let residues = totals.residues as f64;
    let energy = totals.energy_j.filter(|&joules| joules > 0.0);
    [
        ("outcome", last.map(|run| outcome(run.outcome)).into()),
        ("sequences", totals.sequences.into()),
        ("sequences_per_s", totals.sequences_per_s.into()),
        ("tokens_per_s", totals.tokens_per_s.into()),
        (
            "residues_per_s",
            totals.elapsed_s.and_then(|s| share(residues, s)).into(),
        ),
        ("idle_percent", hundred(totals.idle_share)),
        ("packing_percent", hundred(totals.mean_packing)),
        (
            "gpu_percent",
            mean_percent(gpus.map(|gpu| gpu.figures.mean_utilization)),
        ),
        ("cpu_percent", mean_percent(runs.iter().map(cpu))),
        ("rejected", totals.rejected.into()),
        (
            "mj_per_residue",
            energy
                .and_then(|joules| share(1000.0 * joules, residues))
                .into(),
        ),
    ]
}

/// Returns the mean share of the CPUs of a run's host.
fn cpu(run: &RunSummary) -> Option<f64> {
    run.machine.as_ref()?.mean_cpu_utilization
}

/// Returns the products of a run's GPUs, with their numbers if there are several: `2 x NVIDIA L4`.
fn products(run: &RunSummary) -> Option<String> {
    let names = run.gpus.iter().flatten().map(|gpu| gpu.name.as_deref());
    let mut names = names.collect::<Option<Vec<_>>>()?;
    names.sort_unstable();
    let products = counted(&names, "x");
    (!products.is_empty()).then(|| products.join(", "))
}

/// Returns each name once, in the order of the names, with its number if there are several of it.
pub(super) fn counted(names: &[&str], times: &str) -> Vec<String> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    // The first of each takes the count of all.
    let first = names
        .iter()
        .filter_map(|name| Some((name, counts.remove(name)?)));
    let texts = first.map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} {times} {name}"),
    });
    texts.collect()
}

/// Returns the mean of the known shares, in percent.
fn mean_percent(shares: impl Iterator<Item = Option<f64>>) -> Value {
    let mut mean = Mean::default();
    mean.extend(shares.flatten());
    hundred(mean.mean())
}

/// Drops the unknown cells of a row.
fn known_cells(row: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let known = row.into_iter().filter(|(_, value)| !value.is_null());
    known.collect()
}

fn hundred(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}
