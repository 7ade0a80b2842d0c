//! Where verdicts go.

use plmkit_check::{Criteria, Findings};
use plmkit_cli::{Exit, Fault};
use plmkit_dataset::has_shards;
use plmkit_kit::Quoted;
use plmkit_store::{write_json, write_report};
use tracing::warn;

use super::args::Args;
use super::dataset::write_verdict;
use super::html::html;
use super::log::log_verdict;
use super::mqc::table;
use super::report::Report;

/// Judges what was found, and writes the verdict: into the dataset, too, if the embeddings are one.
pub(crate) fn conclude(
    args: &Args,
    findings: &Findings,
    criteria: &Criteria,
) -> Result<Exit, Fault> {
    let mut verdict = findings.verdict(criteria);
    for check in &args.options.skip {
        verdict.skip(check, "switched off by --skip");
    }
    if let Some(models) = findings.two_models() {
        let [one, other] = models.map(|model| {
            let revision = model.revision.as_deref().unwrap_or("unknown");
            format!("{} ({})", Quoted(&model.name), Quoted(revision))
        });
        warn!("origin: files call one model {one} and {other}: reports leave its name out");
    }
    let report = &Report::new(findings, criteria, verdict);
    if let Some(path) = &args.options.report {
        write_json(path, &report.listed)?;
    }
    if let Some(path) = &args.mqc {
        write_json(path, &table(path, report))?;
    }
    if let Some(path) = &args.options.html {
        write_report(path, &html(report))?;
    }
    // Before the folder is written to: that of an archive may not be writable.
    log_verdict(report);
    // Without shards there is less to say than what it says already.
    if let Some(dataset) = args.dataset.as_ref().filter(|dataset| has_shards(dataset)) {
        write_verdict(dataset, &report.listed)?;
    }
    Ok(if report.verdict.passed() {
        Exit::Done
    } else {
        Exit::Negative
    })
}
