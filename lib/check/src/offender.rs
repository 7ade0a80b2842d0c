//! Who failed a check.

use std::fmt;

use plmkit_contract::Quoted;
use serde::Serialize;

use crate::Row;

/// How many offenders a check lists; the rest is counted.
pub(crate) const LISTED: usize = 10;

/// One row, record or file that failed a check.
///
/// As text: `ordinal 3 'P12345' from residue 511: missing`; a control character of an id is escaped, a long id cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offender {
    /// Position of the record in the whole input; null where the offender is a file or a reference row.
    pub ordinal: Option<u64>,
    /// Offset of the row's first residue in the protein; null where the offender is not one row.
    pub start: Option<u32>,
    /// The record's id; null where it is not known.
    pub id: Option<String>,
    /// What is wrong.
    pub problem: String,
}

impl Offender {
    pub(crate) fn row(row: &Row, problem: impl Into<String>) -> Self {
        Self {
            ordinal: Some(row.ordinal),
            start: Some(row.start),
            id: Some(row.id.to_owned()),
            problem: problem.into(),
        }
    }

    pub(crate) fn record(ordinal: u64, problem: impl Into<String>) -> Self {
        Self {
            ordinal: Some(ordinal),
            start: None,
            id: None,
            problem: problem.into(),
        }
    }

    pub(crate) fn file(problem: impl Into<String>) -> Self {
        Self {
            ordinal: None,
            start: None,
            id: None,
            problem: problem.into(),
        }
    }

    pub(crate) fn reference_row(id: &str, start: u32, problem: impl Into<String>) -> Self {
        Self {
            ordinal: None,
            start: Some(start),
            id: Some(id.to_owned()),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.ordinal.map(|ordinal| format!("ordinal {ordinal}")));
        words.extend(self.id.as_deref().map(|id| Quoted(id).to_string()));
        words.extend(
            self.start
                .filter(|&start| start > 0)
                .map(|start| format!("from residue {start}")),
        );
        if words.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{}: {}", words.join(" "), self.problem)
        }
    }
}

/// A count of offenders with the first few of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offenders {
    pub(crate) count: u64,
    pub(crate) first: Vec<Offender>,
}

impl Offenders {
    /// Counts one more, and lists it while there is room.
    pub(crate) fn add(&mut self, offender: impl FnOnce() -> Offender) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(offender());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line() {
        let id = format!("a\tb{}", "é".repeat(10_000));
        let row = Row {
            ordinal: 3,
            id: &id,
            start: 511,
            length: 1,
            truncated: false,
            digest: plmkit_contract::SequenceDigest::default(),
            n_windows: 1,
        };
        let text = Offender::row(&row, "missing").to_string();
        let shown = format!("a\\tb{}…", "é".repeat(76));
        assert_eq!(
            text,
            format!("ordinal 3 '{shown}' from residue 511: missing")
        );
    }

    #[test]
    fn only_the_first_are_listed_and_all_are_counted() {
        let mut offenders = Offenders::default();
        for ordinal in 0..1000 {
            offenders.add(|| Offender::record(ordinal, "missing"));
        }
        assert_eq!((offenders.count, offenders.first.len()), (1000, LISTED));
        assert_eq!(offenders.first[9].to_string(), "ordinal 9: missing");
    }
}
