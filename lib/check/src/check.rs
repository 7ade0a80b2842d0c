//! One question that was put to the files, and its answer.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::offender::{LISTED, Offender, Offenders};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing is wrong.
    Pass,
    /// Something is wrong.
    Fail,
    /// What the check needs was not given.
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        })
    }
}

/// One check of a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked: one of the names in [`Verdict::checks`](crate::Verdict::checks).
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// The answer in one line.
    pub summary: String,
    /// What was counted, by name. Empty when skipped.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ten offenders of each kind.
    pub offenders: Vec<Offender>,
}

impl Check {
    /// A check that fails when there is any offender of any kind.
    pub(crate) fn judged<const N: usize, const K: usize>(
        name: &'static str,
        summary: String,
        counts: [(&'static str, u64); N],
        offenders: [(&'static str, Offenders); K],
    ) -> Self {
        let failed = offenders.iter().any(|(_, kind)| kind.count > 0);
        let mut counts = BTreeMap::from(counts);
        let mut listed = Vec::new();
        for (kind, offenders) in offenders {
            counts.insert(kind, offenders.count);
            listed.extend(offenders.first);
        }
        debug_assert!(listed.len() <= K * LISTED);
        let outcome = if failed { Outcome::Fail } else { Outcome::Pass };
        Self {
            name,
            outcome,
            summary,
            counts,
            offenders: listed,
        }
    }

    /// A check that could not be made.
    pub(crate) fn skipped(name: &'static str, why: &str) -> Self {
        Self {
            name,
            outcome: Outcome::Skipped,
            summary: why.to_owned(),
            counts: BTreeMap::new(),
            offenders: Vec::new(),
        }
    }
}

/// The check in one line: its name, its summary, and its first offender.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.summary)?;
        match self.offenders.first() {
            Some(first) => write!(f, "; first: {first}"),
            None => Ok(()),
        }
    }
}
