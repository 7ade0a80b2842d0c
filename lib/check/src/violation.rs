//! Rows, records and files that fail a check.

use std::fmt;

use plmkit_contract::{AliasRow, RowKey};
use plmkit_kit::Quoted;
use serde::{Deserialize, Serialize};

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

/// A file, which the problem names.
pub(crate) const FILE: Violation = Violation {
    ordinal: None,
    start: None,
    id: None,
    problem: String::new(),
};

/// A row.
impl From<&RowKey<'_>> for Violation {
    fn from(row: &RowKey<'_>) -> Self {
        (row.ordinal, row.start, row.id).into()
    }
}

/// A row by ordinal, start and id.
impl From<(u64, u32, &str)> for Violation {
    fn from((ordinal, start, id): (u64, u32, &str)) -> Self {
        Self {
            ordinal: Some(ordinal),
            start: Some(start),
            id: Some(id.to_owned()),
            ..FILE
        }
    }
}

/// A record of a list.
impl From<&AliasRow<'_>> for Violation {
    fn from(row: &AliasRow<'_>) -> Self {
        Self {
            id: Some(row.key.id.to_owned()),
            ..row.key.ordinal.into()
        }
    }
}

/// The record with this ordinal.
impl From<u64> for Violation {
    fn from(ordinal: u64) -> Self {
        Self {
            ordinal: Some(ordinal),
            ..FILE
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
