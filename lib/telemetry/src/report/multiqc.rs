//! A report for `MultiQC`: its custom content, one table with a row for each run, or one for all runs of a sample.
//!
//! <https://docs.seqera.io/multiqc/custom_content>

use plmkit_page::multiqc as table;
use serde_json::{Value, json};

use super::tables::RUNS;
use super::{Report, RunSummary};

/// Returns the report as custom content. Rows are named after `sample`, and after the run if there are runs of several samples;
/// several runs of one sample are one row. Unknown values are left out.
pub fn multiqc(report: &Report, sample: &str) -> Value {
    let runs = report.runs();
    let rows: Vec<(String, RunSummary)> = match (runs, &report.sum) {
        ([run], _) => vec![(sample.to_owned(), run.clone())],
        (_, Some(sum)) if sum.setup.sample.is_some() => vec![(sample.to_owned(), sum.clone())],
        _ => {
            let named = |run: &RunSummary| format!("{sample} {}", run.name);
            runs.iter().map(|run| (named(run), run.clone())).collect()
        }
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
