//! One check of the files: what it counts and finds, and its result.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::Serialize;

use crate::checks::{CHECKS, Definition, entries, in_words};
use crate::violation::{Place, Violation};

/// The number of violations of a kind that a check lists; all are counted.
pub(crate) const LISTED: usize = 10;

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
    /// What was checked: a name of [`CHECKS`](crate::CHECKS).
    pub name: &'static str,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// The answer in one line.
    pub summary: String,
    /// What was counted, by name, and the violations of each kind. Empty when skipped.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ten violations of each kind.
    #[serde(rename = "offenders")]
    pub violations: Vec<Violation>,
}

impl Check {
    /// What it asks, and what to do where it fails.
    ///
    /// # Panics
    /// Never: every check is one of [`CHECKS`](crate::CHECKS).
    pub fn definition(&self) -> &'static Definition {
        let definition = CHECKS.iter().find(|check| check.name == self.name);
        definition.expect("a name of CHECKS")
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

/// What a check has counted and found so far. Names are those of its [`Definition`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<&'static str, u64>,
    violations: BTreeMap<&'static str, Violations>,
}

/// The violations of one kind: their number, and the first of them.
#[derive(Clone, Debug, Default)]
struct Violations {
    count: u64,
    first: Vec<Violation>,
}

impl Tally {
    pub(crate) fn count(&mut self, name: &'static str, more: u64) {
        *self.counts.entry(name).or_default() += more;
    }

    /// Counts a violation, and lists it while there is room. The problem is put into words only where it is listed.
    pub(crate) fn add<'a>(
        &mut self,
        kind: &'static str,
        place: impl Into<Place<'a>>,
        problem: impl Display,
    ) {
        let violations = self.violations.entry(kind).or_default();
        violations.count += 1;
        if violations.first.len() < LISTED {
            let violation = Violation::new(place.into(), problem);
            violations.first.push(violation);
        }
    }

    /// Counts violations that are not listed.
    pub(crate) fn add_unlisted(&mut self, kind: &'static str, more: u64) {
        self.violations.entry(kind).or_default().count += more;
    }

    /// The count of this name.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The number of violations of a kind.
    pub(crate) fn violations(&self, kind: &str) -> u64 {
        self.violations.get(kind).map_or(0, |found| found.count)
    }

    /// Adds those of other files, which follow.
    fn merge(&mut self, other: Self) {
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (kind, more) in other.violations {
            let known = self.violations.entry(kind).or_default();
            known.count += more.count;
            let room = LISTED - known.first.len();
            known.first.extend(more.first.into_iter().take(room));
        }
    }

    /// The check: it fails when there is any violation of any kind.
    pub(crate) fn finish(mut self, definition: &'static Definition) -> Check {
        let mut counts = self.counts;
        let (mut listed, mut outcome) = (Vec::new(), CheckOutcome::Pass);
        for (name, _) in entries(definition.counts) {
            counts.entry(name).or_default();
        }
        for (kind, _) in entries(definition.kinds) {
            let found = self.violations.remove(kind).unwrap_or_default();
            if found.count > 0 {
                outcome = CheckOutcome::Fail;
            }
            counts.insert(kind, found.count);
            listed.extend(found.first);
        }
        debug_assert!(self.violations.is_empty(), "{:?}", self.violations);
        let said = match outcome {
            CheckOutcome::Fail => definition.kinds,
            _ => definition.counts,
        };
        Check {
            name: definition.name,
            outcome,
            summary: in_words(said, &counts),
            counts,
            violations: listed,
        }
    }
}

/// The tallies of all checks, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies(BTreeMap<&'static str, Tally>);

impl Tallies {
    /// That of one check.
    pub(crate) fn of(&mut self, check: &'static str) -> &mut Tally {
        self.0.entry(check).or_default()
    }

    /// Adds those of other files, which follow.
    pub(crate) fn merge(&mut self, other: Self) {
        for (check, tally) in other.0 {
            self.0.entry(check).or_default().merge(tally);
        }
    }
}

#[cfg(test)]
impl Tallies {
    /// The result of a check.
    pub(crate) fn result(mut self, name: &'static str) -> Check {
        let definition = CHECKS.iter().find(|check| check.name == name);
        std::mem::take(self.of(name)).finish(definition.expect("a check"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_are_listed_and_all_are_counted() {
        let mut tallies = Tallies::default();
        for ordinal in 0..1000_u64 {
            tallies.of("ordinals").add("absent", ordinal, "missing");
        }
        let mut all = Tallies::default();
        all.of("ordinals").add("absent", 5000, "missing");
        all.merge(tallies);
        let check = all.result("ordinals");
        assert_eq!(
            (check.counts["absent"], check.violations.len()),
            (1001, LISTED)
        );
        assert_eq!(check.violations[9].to_string(), "ordinal 8: missing");
    }
}
