//! What makes a reference unfit to compare with.

use plmkit_contract::{Exit, Failure, LIST_SHOWN, Quoted, one_line, plural};

/// Why a reference cannot be compared with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Two rows claim to be the vectors of the same row.
    #[error("{} from residue {start} is in the reference more than once", Quoted(.id))]
    Doubled {
        /// The id.
        id: String,
        /// The offset in the protein, in residues.
        start: u32,
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

impl Failure for ReferenceError {
    fn exit(&self) -> Exit {
        Exit::Data
    }
}
