//! What a verdict says on standard error.

use plmkit_check::CheckOutcome;
use plmkit_kit::plural;
use tracing::{error, info, warn};

use super::report::Report;

/// Logs one line for each check that failed, and a summary.
pub(crate) fn log_verdict(report: &Report) {
    let verdict = &report.verdict;
    for check in verdict.of(CheckOutcome::Fail) {
        error!("{check}");
    }
    let not_compared = verdict.not_compared.iter().map(ToString::to_string);
    let not_compared: Vec<String> = not_compared.collect();
    if !not_compared.is_empty() {
        warn!(
            "reference: not compared: {}; only columns of one vector a row are compared, if the reference has them",
            not_compared.join(", ")
        );
    }
    let truncated = match (verdict.truncated, verdict.residues_truncated) {
        (0, _) => String::new(),
        // What the manifest counts is of rows that are missing, too.
        (rows, Some(lost)) if verdict.passed() => {
            format!(", {rows} truncated by {}", plural(lost, "residue"))
        }
        (rows, _) => format!(", {rows} truncated"),
    };
    let (failed, passed) = (report.failed(), report.passed());
    let outcome = if failed.is_empty() {
        "pass:".to_owned()
    } else {
        format!("fail: {failed};")
    };
    let skipped = verdict
        .of(CheckOutcome::Skipped)
        .map(|check| check.definition.name);
    let skipped = skipped.collect::<Vec<_>>().join(", ");
    let skipped = if skipped.is_empty() {
        skipped
    } else {
        format!("; skipped: {skipped}")
    };
    let (rows, why) = (plural(verdict.rows, "row"), report.not_recomputed());
    info!("{outcome} {rows}{truncated}; {passed}{skipped}{why}");
}
