//! What a verdict says on standard error.

use plmkit_check::{CheckOutcome, Verdict};
use plmkit_contract::plural;
use tracing::{error, info, warn};

/// Logs one line for each check that failed, and a summary.
pub(crate) fn log_verdict(verdict: &Verdict, min_cosine: f64) {
    for check in verdict.failed() {
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
    let names = |outcome| {
        let checks = verdict.checks.iter();
        let checks = checks.filter(|check| check.outcome == outcome);
        let names: Vec<&str> = checks.map(|check| check.name).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let truncated = match (verdict.truncated, verdict.residues_truncated) {
        (0, _) => String::new(),
        // What the manifest counts is of rows that are missing, too.
        (rows, Some(lost)) if verdict.passed() => {
            format!(", {rows} truncated by {}", plural(lost, "residue"))
        }
        (rows, _) => format!(", {rows} truncated"),
    };
    let spot_check = verdict
        .checks
        .iter()
        .find(|check| check.name == "spot-check");
    let recomputed = match spot_check {
        Some(check) if check.outcome == CheckOutcome::Skipped => format!("; {}", check.summary),
        _ => String::new(),
    };
    info!(
        "{}{truncated}; passed: {}; failed: {}; skipped: {}{recomputed}",
        plural(verdict.rows, "row"),
        names(CheckOutcome::Pass),
        names(CheckOutcome::Fail),
        names(CheckOutcome::Skipped)
    );
}
