//! What makes a reference unfit to compare with.

use plmkit_contract::{Exit, Failure, LIST_SHOWN, Quoted, one_line, plural};

/// Why a reference cannot be compared with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Two rows claim to be the vectors of the same row.
    #[error("{} from residue {start} is in it more than once{}", Quoted(.id), also(.id, .first_id))]
    Doubled {
        /// The id.
        id: String,
        /// The offset in the protein, in residues.
        start: u32,
        /// The row, counted in the order in which rows were added.
        row: usize,
        /// The row before it that has the same key.
        first: usize,
        /// Its id: another one if rows are matched by a part of it.
        first_id: String,
    },
    /// The vectors of one column have different lengths.
    #[error("{}: column {}: expected {}, found {found}", Quoted(.id), Quoted(.column), plural(*.expected, "value"))]
    Ragged {
        /// The id of the row.
        id: String,
        /// The column.
        column: String,
        /// As in the first row.
        expected: usize,
        /// In this row.
        found: usize,
    },
    /// A column of the reference that was asked for has none to be compared with.
    #[error(
        "column {}: expected {expected} in the embeddings to compare it with, found {}",
        Quoted(.name), .embeddings.join(", ")
    )]
    NotPaired {
        /// Of the reference.
        name: String,
        /// What it should be compared with.
        expected: String,
        /// The columns of an embeddings file.
        embeddings: Vec<String>,
    },
    /// Reference and embeddings have no vector column to compare.
    #[error(
        "has no vector column of the embeddings: expected one of {}, found {}",
        .embeddings.join(", "), one_line(&.reference.join(", "), LIST_SHOWN)
    )]
    NoCommonColumn {
        /// Of the reference.
        reference: Vec<String>,
        /// Of an embeddings file.
        embeddings: Vec<String>,
    },
}

/// The other id of a row, where it has one.
fn also(id: &str, first_id: &str) -> String {
    if id == first_id {
        String::new()
    } else {
        format!(", also as {}", Quoted(first_id))
    }
}

impl Failure for ReferenceError {
    fn exit(&self) -> Exit {
        Exit::Data
    }
}
