//! What a verdict says on standard error.

use plmkit_check::{Check, CheckOutcome};
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
    let list = |outcome, say: fn(&Check) -> String| -> Option<String> {
        let said: Vec<String> = verdict.of(outcome).map(say).collect();
        (!said.is_empty()).then(|| said.join(", "))
    };
    let failed = list(CheckOutcome::Fail, |check| {
        format!("{} ({})", check.name, check.summary)
    });
    let passed = plural(verdict.of(CheckOutcome::Pass).count(), "check");
    let skipped = list(CheckOutcome::Skipped, |check| check.name.to_owned());
    let spot_check = verdict.check("spot-check");
    let recomputed = match spot_check.outcome {
        CheckOutcome::Skipped => format!("; {}", spot_check.summary),
        _ => String::new(),
    };
    info!(
        "{} {}{truncated}; {passed} passed{}{recomputed}",
        failed.map_or("pass:".to_owned(), |failed| format!("fail: {failed};")),
        plural(verdict.rows, "row"),
        skipped.map_or(String::new(), |skipped| format!("; skipped: {skipped}")),
    );
}
