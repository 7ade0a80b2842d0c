//! `rejects.csv`.

use std::fs::File;
use std::path::Path;

use plmkit_contract::Reject;
use plmkit_store::StoreError;

/// The ordinals of the rejected records.
pub(crate) fn read_rejects(path: &Path) -> Result<Vec<u64>, StoreError> {
    let opened = File::open(path).map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })?;
    let mut reader = csv::Reader::from_reader(opened);
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
        csv::ErrorKind::Io(source) => StoreError::Read { path, source },
        _ => StoreError::Malformed {
            path,
            what: format!("not a rejects file: {what}"),
        },
    }
}
