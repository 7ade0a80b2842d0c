//! Looks single proteins up.

use arrow::array::{AsArray, RecordBatch};
use plmkit_contract::Stop;

use crate::{AskedIds, DatasetError, Parts};

/// A row that was looked up.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its id.
    pub id: String,
    /// Its columns.
    pub row: RecordBatch,
}

/// Finds the rows of `ids`. Of each row group, the filter of ids is read; of those that may have an id, the ids; and
/// of its rows, the pages with the computed columns `names`, or with all. Rows are in the order of the files.
pub fn lookup(
    parts: &Parts,
    ids: &AskedIds,
    names: &[String],
    stop: &Stop,
) -> Result<Vec<Found>, DatasetError> {
    let mut found = Vec::new();
    let keys = parts.layout.keys();
    let columns = parts.places(names)?;
    for part in &parts.parts {
        let file = part.reopen()?;
        for group in 0..part.groups.len() {
            if stop.requested() {
                return Err(DatasetError::stopped());
            }
            if let Some(few) = ids.few()
                && !file.may_have(group, few)?
            {
                continue;
            }
            for row in file.rows_with(group, |id| ids.has(id))? {
                let places = (0..keys).chain(columns.iter().map(|place| keys + place));
                let row = file.read(group, std::slice::from_ref(&(row..row + 1)), places)?;
                let id = row["id"].as_string::<i32>().value(0).to_owned();
                found.push(Found { id, row });
            }
        }
    }
    Ok(found)
}
