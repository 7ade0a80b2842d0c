//! A part: an embeddings file with the results of consecutive batches of an incomplete block. No protein has windows both inside
//! and outside a part.

use std::path::Path;

use arrow_array::RecordBatch;
use plmkit_contract::Provenance;
use plmkit_store::{EmbeddingsReader, StoreError};

use super::OutputBlock;

/// Reads the metadata of the part at `path` of the work with this `provenance`, without its rows. See [`OutputBlock::all_of`].
pub(crate) fn open_part(path: &Path, provenance: &Provenance) -> Result<OutputBlock, StoreError> {
    let found = EmbeddingsReader::open(path)?.provenance().clone();
    let mut blocks = OutputBlock::all_of(path, found, provenance)?;
    let block = blocks.pop().filter(|_| blocks.is_empty());
    block.ok_or_else(|| StoreError::malformed(path, "not a part of a run"))
}

/// Reads and verifies the rows of the part at `path`.
pub(crate) fn read_part(path: &Path) -> Result<Vec<RecordBatch>, StoreError> {
    let mut reader = EmbeddingsReader::open(path)?;
    let mut all = Vec::new();
    while let Some(rows) = reader.next_batch()? {
        all.push(rows);
    }
    Ok(all)
}
