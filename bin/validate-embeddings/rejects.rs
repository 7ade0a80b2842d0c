//! `rejects.csv`.

use std::io::ErrorKind;
use std::path::Path;

use plmkit_contract::Reject;
use plmkit_store::{Lines, StoreError};

/// The ordinals of the rejected records.
pub(crate) fn read_rejects(path: &Path) -> Result<Vec<u64>, StoreError> {
    let mut reader = csv::Reader::from_reader(Lines::open(path)?);
    let rows = reader
        .deserialize()
        .map(|row| row.map(|reject: Reject| reject.ordinal));
    rows.collect::<Result<_, _>>()
        .map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: csv::Error) -> StoreError {
    let path = path.to_owned();
    let what = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.kind() != ErrorKind::InvalidData => {
            StoreError::Read { path, source }
        }
        _ => StoreError::Malformed {
            path,
            what: format!("not a rejects file: {what}"),
        },
    }
}
