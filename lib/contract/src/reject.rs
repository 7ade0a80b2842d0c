//! Records that are not embedded, and why.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a record was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The record has no residues.
    Empty,
    /// Fewer residues than asked for.
    TooShort,
    /// More residues than allowed.
    TooLong,
    /// A character that is no residue.
    InvalidResidue,
}

impl Reason {
    /// Every reason, in the order in which reports list them.
    pub const ALL: [Self; 4] = [
        Self::Empty,
        Self::TooShort,
        Self::TooLong,
        Self::InvalidResidue,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::InvalidResidue => "invalid_residue",
        })
    }
}

impl FromStr for Reason {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.to_string() == text)
            .ok_or(())
    }
}

/// One row of `rejects.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id.
    pub id: String,
    /// Its residues.
    pub length: u64,
    /// Why it is here.
    pub reason: Reason,
}
