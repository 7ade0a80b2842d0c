//! One check of the files: what it counts and finds, and its result.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::checks::{CHECKS, Definition, Kind, in_words};
use crate::violation::Violation;

/// The number of violations of a kind that a check lists; all are counted.
pub(crate) const LISTED: usize = 10;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    #[serde(rename = "name", serialize_with = "name", deserialize_with = "defined")]
    pub definition: &'static Definition,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// The answer in one line.
    pub summary: String,
    /// What was counted, by name, and the violations of each kind. Empty when skipped, and when read again.
    #[serde(skip_deserializing)]
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ten violations of each kind.
    #[serde(rename = "offenders")]
    pub violations: Vec<Violation>,
}

fn name<S: Serializer>(check: &Definition, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(check.name)
}

fn defined<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Definition, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = CHECKS.iter().find(|check| check.name == name);
    known.ok_or_else(|| de::Error::custom(format_args!("no check: {name}")))
}

impl Check {
    /// A check that could not be made.
    pub(crate) fn skipped(definition: &'static Definition, why: &str) -> Self {
        Self {
            definition,
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
        write!(f, "{}: {}", self.definition.name, self.summary)?;
        match self.violations.first() {
            Some(first) => write!(f, "; first: {first}"),
            None => Ok(()),
        }
    }
}

/// The number of some violations, and the first of them.
pub(crate) type Tally = (u64, Vec<Violation>);

/// Counts a violation, and lists it while there is room. The problem is put into words only where it is listed.
pub(crate) fn add((count, first): &mut Tally, place: impl Into<Violation>, problem: impl Display) {
    *count += 1;
    if first.len() < LISTED {
        first.push(Violation {
            problem: problem.to_string(),
            ..place.into()
        });
    }
}

/// What the checks have counted and found so far: the number of each kind, and the first violations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies(BTreeMap<Kind, Tally>);

impl Tallies {
    pub(crate) fn count(&mut self, kind: Kind, more: u64) {
        self.0.entry(kind).or_default().0 += more;
    }

    /// Counts a violation, and lists it while there is room.
    pub(crate) fn add(&mut self, kind: Kind, place: impl Into<Violation>, problem: impl Display) {
        add(self.0.entry(kind).or_default(), place, problem);
    }

    /// Adds violations of a kind.
    pub(crate) fn add_all(&mut self, kind: Kind, (more, violations): Tally) {
        let (count, first) = self.0.entry(kind).or_default();
        *count += more;
        let room = LISTED - first.len();
        first.extend(violations.into_iter().take(room));
    }

    /// Returns the number of a kind.
    pub(crate) fn counted(&self, kind: Kind) -> u64 {
        self.0.get(&kind).map_or(0, |(count, _)| *count)
    }

    /// Adds those of other files, which follow.
    pub(crate) fn merge(&mut self, other: Self) {
        for (kind, tally) in other.0 {
            self.add_all(kind, tally);
        }
    }

    /// The check: it fails when there is any violation of any kind.
    pub(crate) fn check(&self, definition: &'static Definition) -> Check {
        let Definition { counts, kinds, .. } = definition;
        let has_failed = kinds.iter().any(|&kind| self.counted(kind) > 0);
        let (outcome, said) = if has_failed {
            (CheckOutcome::Fail, kinds)
        } else {
            (CheckOutcome::Pass, counts)
        };
        let all = counts.iter().chain(*kinds);
        let counts = all.map(|&kind| (kind.name, self.counted(kind))).collect();
        let listed = kinds.iter().filter_map(|kind| self.0.get(kind));
        Check {
            definition,
            outcome,
            summary: in_words(said, &counts),
            counts,
            violations: listed.flat_map(|(_, first)| first.clone()).collect(),
        }
    }
}

#[cfg(test)]
impl Tallies {
    /// The result of a check.
    pub(crate) fn result(&self, name: &'static str) -> Check {
        let definition = CHECKS.iter().find(|check| check.name == name);
        self.check(definition.expect("a check"))
    }
}
