//! Looks single proteins up.

use std::path::PathBuf;

use arrow::array::{AsArray, RecordBatch};
use plmkit_contract::Stop;
use plmkit_store::{EmbeddingsFile, FileKind};

use crate::{AskedIds, DatasetError};

/// A row that was looked up.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its id.
    pub id: String,
    /// Its columns.
    pub row: RecordBatch,
}

/// Finds the rows of `ids` in the files `paths`. Of each row group, the filter of ids is read; of those that may have an id, the ids; and
/// of its rows, the pages with the computed columns `names`, or with all. Rows are in the order of the files.
pub fn lookup(
    paths: &[PathBuf],
    ids: &AskedIds,
    names: &[String],
    stop: &Stop,
) -> Result<Vec<Found>, DatasetError> {
    let mut found = Vec::new();
    for path in paths {
        let file =
            EmbeddingsFile::open(path).map_err(|error| error.of_input(FileKind::Embeddings))?;
        let keys = file.layout().keys();
        let columns = columns(&file, names)?;
        for group in 0..file.groups()?.len() {
            if stop.requested() {
                return Err(DatasetError::stopped());
            }
            if let Some(few) = ids.few()
                && !file.may_have(group, few)?
            {
                continue;
            }
            for row in file.rows_with(group, |id| ids.has(id))? {
                let places = (0..keys).chain(columns.iter().copied());
                let row = file.read(group, std::slice::from_ref(&(row..row + 1)), places)?;
                let id = row["id"].as_string::<i32>().value(0).to_owned();
                found.push(Found { id, row });
            }
        }
    }
    Ok(found)
}

/// The places of the computed columns of these names, or of all.
fn columns(file: &EmbeddingsFile, names: &[String]) -> Result<Vec<usize>, DatasetError> {
    let layout = file.layout();
    let places = layout.places(names);
    let places = places.map_err(|what| DatasetError::content(file.path(), what))?;
    Ok(places
        .into_iter()
        .map(|place| layout.keys() + place)
        .collect())
}
