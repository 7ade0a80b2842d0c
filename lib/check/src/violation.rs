//! Rows, records and files that fail a check.

use std::fmt::{self, Display};

use plmkit_contract::{Quoted, RowKey};
use serde::Serialize;

/// One row, record or file that fails a check.
///
/// As text: `ordinal 3 'P12345' from residue 511: missing`; a control character of an id is escaped, a long id cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// Where a violation is; what is not known of the place is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'a> {
    pub(crate) ordinal: Option<u64>,
    pub(crate) start: Option<u32>,
    pub(crate) id: Option<&'a str>,
}

/// A file, which the problem names.
pub(crate) const FILE: Place<'static> = Place {
    ordinal: None,
    start: None,
    id: None,
};

impl<'a> From<&RowKey<'a>> for Place<'a> {
    fn from(row: &RowKey<'a>) -> Self {
        (row.ordinal, row.start, row.id).into()
    }
}

/// A row by ordinal, start and id.
impl<'a> From<(u64, u32, &'a str)> for Place<'a> {
    fn from((ordinal, start, id): (u64, u32, &'a str)) -> Self {
        Self {
            ordinal: Some(ordinal),
            start: Some(start),
            id: Some(id),
        }
    }
}

/// The record with this ordinal.
impl From<u64> for Place<'_> {
    fn from(ordinal: u64) -> Self {
        Self {
            ordinal: Some(ordinal),
            ..FILE
        }
    }
}

impl Violation {
    pub(crate) fn new(place: Place<'_>, problem: impl Display) -> Self {
        Self {
            ordinal: place.ordinal,
            start: place.start,
            id: place.id.map(str::to_owned),
            problem: problem.to_string(),
        }
    }
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
        let shown = format!("a\\tb{}…", "é".repeat(76));
        assert_eq!(
            Violation::new((&row).into(), "missing").to_string(),
            format!("ordinal 3 '{shown}' from residue 511: missing")
        );
    }
}
