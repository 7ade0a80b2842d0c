//! Rows, records and files that fail a check.

use std::fmt::{self, Display};

use plmkit_contract::{Quoted, RowKey};
use serde::{Deserialize, Serialize};

/// The number of violations that a check lists; all are counted.
pub(crate) const LISTED: usize = 10;

/// One row, record or file that fails a check.
///
/// As text: `ordinal 3 'P12345' from residue 511: missing`; a control character of an id is escaped, a long id cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Position of the record in the whole input; null where the violation is a file or a reference row.
    pub ordinal: Option<u64>,
    /// Offset of the row's first residue in the protein; null where the violation is not one row.
    pub start: Option<u32>,
    /// The record's id; null where it is not known.
    pub id: Option<String>,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Violation {
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

/// A count of violations with the first few of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Violations {
    pub(crate) count: u64,
    pub(crate) first: Vec<Violation>,
}

impl Violations {
    /// Counts a violation, and lists it while there is room. The problem is put into words only where it is listed.
    pub(crate) fn add(
        &mut self,
        ordinal: Option<u64>,
        start: Option<u32>,
        id: Option<&str>,
        problem: impl Display,
    ) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(Violation {
                ordinal,
                start,
                id: id.map(str::to_owned),
                problem: problem.to_string(),
            });
        }
    }

    /// Adds those of another part of the files, which follows this one.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }

    pub(crate) fn add_row(&mut self, row: &RowKey, problem: impl Display) {
        self.add(Some(row.ordinal), Some(row.start), Some(row.id), problem);
    }

    pub(crate) fn add_record(&mut self, ordinal: u64, problem: impl Display) {
        self.add(Some(ordinal), None, None, problem);
    }

    pub(crate) fn add_file(&mut self, problem: impl Display) {
        self.add(None, None, None, problem);
    }

    pub(crate) fn add_reference_row(&mut self, id: &str, start: u32, problem: impl Display) {
        self.add(None, Some(start), Some(id), problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line() {
        let id = format!("a\tb{}", "é".repeat(10_000));
        let row = RowKey {
            ordinal: 3,
            id: &id,
            start: 511,
            length: 1,
            truncated: false,
            digest: plmkit_contract::SequenceDigest::default(),
            n_windows: 1,
        };
        let mut violations = Violations::default();
        violations.add_row(&row, "missing");
        let text = violations.first[0].to_string();
        let shown = format!("a\\tb{}…", "é".repeat(76));
        assert_eq!(
            text,
            format!("ordinal 3 '{shown}' from residue 511: missing")
        );
    }

    #[test]
    fn only_the_first_are_listed_and_all_are_counted() {
        let mut violations = Violations::default();
        for ordinal in 0..1000 {
            violations.add_record(ordinal, "missing");
        }
        assert_eq!((violations.count, violations.first.len()), (1000, LISTED));
        assert_eq!(violations.first[9].to_string(), "ordinal 9: missing");
    }
}
