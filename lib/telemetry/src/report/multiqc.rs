//! A report for `MultiQC`: its custom content, one table with a row for each run, or one for all runs of a sample.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use plmkit_page::multiqc as table;
use serde_json::{Value, json};

use super::tables::RUNS;
use super::{Report, RunSummary, Totals};

/// Returns the report as custom content. Rows are named after `sample`, and after the run if there are runs of several samples;
/// several runs of one sample are one row. Unknown values are left out.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let runs = report.runs();
    let mut by_sample = report.events.iter().flat_map(|events| &events.by_sample);
    let totals = by_sample.find(|totals| runs.len() > 1 && totals.runs == runs.len() as u64);
    let named = |run: &RunSummary| match runs.len() {
        1 => sample.to_owned(),
        _ => format!("{sample} {}", run.run),
    };
    let rows: Vec<(String, Totals)> = match totals {
        Some(totals) => vec![(sample.to_owned(), totals.clone())],
        None => runs
            .iter()
            .map(|run| (named(run), Totals::new(&[run])))
            .collect(),
    };
    let (mut headers, data) = table(&rows, &RUNS);
    headers["outcome"]["cond_formatting_rules"] = json!({
        "pass": [{ "s_eq": "done" }],
        "warn": [{ "s_eq": "stopped" }, { "s_eq": "no end" }],
        "fail": [{ "s_eq": "failed" }],
    });
    json!({
        "id": "plmkit_monitor",
        "section_name": "plmkit: embedding runs",
        "description": "Throughput, waits and packing of protein language model embedding runs, from run events and GPU samples.",
        "plot_type": "table",
        "pconfig": { "id": "plmkit_monitor_table", "title": "plmkit: embedding runs" },
        "headers": headers,
        "data": data,
    })
}
