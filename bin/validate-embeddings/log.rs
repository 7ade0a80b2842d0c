//! What a verdict says on standard error.

use plmkit_check::CheckOutcome;
use plmkit_contract::plural;
use tracing::{error, info, warn};

use crate::report::VerdictReport;

/// Logs one line for each check that failed, and a summary.
pub(crate) fn log_verdict(report: &VerdictReport) {
    let (verdict, min_cosine) = (report.verdict, report.min_cosine.unwrap_or(1.0));
    for check in verdict.of(CheckOutcome::Fail) {
        error!("{check}");
    }
    if !verdict.not_compared.is_empty() {
        warn!(
            "reference: not compared: {}; only columns of one vector a row are compared, if the reference has them",
            verdict.not_compared.join(", ")
        );
    }
    for column in &verdict.agreement {
        if let Some(unrelated) = column
            .unrelated_median
            .filter(|&unrelated| unrelated >= min_cosine)
        {
            warn!(
                "reference: {}: unrelated proteins have a median cosine of {unrelated:.6}: --min-cosine {min_cosine} says little",
                column.column
            );
        }
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
    let skipped = verdict.of(CheckOutcome::Skipped).map(|check| check.name);
    let skipped = skipped.collect::<Vec<_>>().join(", ");
    let skipped = if skipped.is_empty() {
        skipped
    } else {
        format!("; skipped: {skipped}")
    };
    let (rows, why) = (plural(verdict.rows, "row"), report.not_recomputed());
    info!("{outcome} {rows}{truncated}; {passed}{skipped}{why}");
}
