//! A report for `MultiQC`: its custom content, one table with a row for each run.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use serde_json::{Map, Value, json};

use super::{Report, RunSummary};

/// The report as custom content. Rows are called `sample`, and where there are several runs, after the run too.
/// What is not known is left out of the table. Without runs the row tells of the GPUs and the host alone.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let runs = report
        .events
        .as_ref()
        .map_or(&[][..], |events| &events.runs);
    let beside = beside(report);
    let mut data = Map::new();
    for run in runs {
        let name = if runs.len() == 1 {
            sample.to_owned()
        } else {
            format!("{sample} {}", run.run)
        };
        let row = of_run(run).into_iter().chain(beside.clone());
        data.insert(name, row.filter(|(_, value)| !value.is_null()).collect());
    }
    if runs.is_empty() {
        let row = beside.into_iter().filter(|(_, value)| !value.is_null());
        data.insert(sample.to_owned(), row.collect());
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
            "gpu_percent": percent("GPU", "Mean utilization over the GPUs of the run"),
            "cpu_percent": percent("CPU", "Mean utilization of the host's CPUs"),
        },
        "data": data,
    })
}

fn percent(title: &str, description: &str) -> Value {
    json!({ "title": title, "description": description, "suffix": " %", "format": "{:,.1f}", "min": 0, "max": 100 })
}

fn of_run(run: &RunSummary) -> Vec<(String, Value)> {
    let queue = &run.queue;
    let starved = (queue.batches > 0).then(|| queue.starved as f64 / queue.batches as f64);
    let compute = run.stages.compute.as_ref().and_then(|stage| stage.share);
    vec![
        ("sequences".to_owned(), run.sequences.into()),
        (
            "tokens_per_s".to_owned(),
            run.throughput.tokens_per_s.into(),
        ),
        (
            "residues_per_s".to_owned(),
            run.throughput.residues_per_s.into(),
        ),
        ("compute_percent".to_owned(), hundred(compute)),
        ("starved_percent".to_owned(), hundred(starved)),
        (
            "packing_percent".to_owned(),
            hundred(run.packing.mean_utilization),
        ),
    ]
}

/// What was seen beside the runs.
fn beside(report: &Report) -> Vec<(String, Value)> {
    let Some(samples) = &report.samples else {
        return Vec::new();
    };
    let mut gpus = super::mean::Mean::default();
    let in_run = samples.gpus.iter().filter(|gpu| gpu.in_run);
    in_run
        .filter_map(|gpu| gpu.mean_utilization)
        .for_each(|mean| gpus.add(mean));
    vec![
        ("gpu_percent".to_owned(), hundred(gpus.mean())),
        (
            "cpu_percent".to_owned(),
            hundred(samples.host.mean_cpu_utilization),
        ),
    ]
}

fn hundred(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}
