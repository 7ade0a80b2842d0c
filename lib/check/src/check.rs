//! One check of the files, and its result.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::violation::{LISTED, Violation, Violations};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CheckOutcome {
    /// Nothing is wrong.
    Pass,
    /// Something is wrong.
    Fail,
    /// What the check needs was not given.
    Skipped,
}

/// One check of a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked: one of the names in [`Verdict::checks`](crate::Verdict::checks).
    pub name: &'static str,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// The answer in one line.
    pub summary: String,
    /// What was counted, by name. Empty when skipped.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ten violations of each kind.
    #[serde(rename = "offenders")]
    pub violations: Vec<Violation>,
}

impl Check {
    /// A check that fails when there is any violation of any kind.
    pub(crate) fn judged<const N: usize, const K: usize>(
        name: &'static str,
        summary: String,
        counts: [(&'static str, u64); N],
        violations: [(&'static str, Violations); K],
    ) -> Self {
        let failed = violations.iter().any(|(_, kind)| kind.count > 0);
        let mut counts = BTreeMap::from(counts);
        let mut listed = Vec::new();
        for (kind, violations) in violations {
            counts.insert(kind, violations.count);
            listed.extend(violations.first);
        }
        debug_assert!(listed.len() <= K * LISTED);
        let outcome = if failed {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Pass
        };
        Self {
            name,
            outcome,
            summary,
            counts,
            violations: listed,
        }
    }

    /// A check that could not be made.
    pub(crate) fn skipped(name: &'static str, why: &str) -> Self {
        Self {
            name,
            outcome: CheckOutcome::Skipped,
            summary: why.to_owned(),
            counts: BTreeMap::new(),
            violations: Vec::new(),
        }
    }
}

/// The check in one line: its name, its summary, and its first violation.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.summary)?;
        match self.violations.first() {
            Some(first) => write!(f, "; first: {first}"),
            None => Ok(()),
        }
    }
}
