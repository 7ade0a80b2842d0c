//! Reports and manifests as JSON.

use std::io::{Read, Write};
use std::path::Path;

use plmkit_contract::Sealed;
use serde::Serialize;

use crate::open::open_input;
use crate::{AtomicFile, StoreError};

/// Bytes of a file that is read. A manifest has some 200 bytes a shard.
const JSON_BYTES: u64 = 256 << 20;

/// Writes `value` as indented JSON with a final newline.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let mut file = AtomicFile::create(path)?;
    let failed = |source| StoreError::Write {
        path: path.to_owned(),
        source,
    };
    serde_json::to_writer_pretty(&mut file, value).map_err(|error| failed(error.into()))?;
    file.write_all(b"\n").map_err(failed)?;
    file.finish()
}

/// Writes `value` as JSON with a seal.
pub fn write_sealed(mut file: AtomicFile, value: &impl Sealed) -> Result<(), StoreError> {
    file.write_all(value.to_json().as_bytes())
        .map_err(|source| StoreError::Write {
            path: file.path().to_owned(),
            source,
        })?;
    file.finish()
}

/// Reads JSON with a seal and verifies it.
pub fn read_sealed<T: Sealed>(path: &Path) -> Result<T, StoreError> {
    let mut text = Vec::new();
    open_input(path)?
        .take(JSON_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|source| StoreError::Read {
            path: path.to_owned(),
            source,
        })?;
    if text.len() as u64 > JSON_BYTES {
        return Err(StoreError::malformed(
            path,
            format_args!("expected a {} of at most {JSON_BYTES} bytes", T::WHAT),
        ));
    }
    T::from_json(&text).map_err(|source| StoreError::Sealed {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Exit, Failure, Manifest};

    use super::*;

    #[test]
    fn what_is_no_manifest_is_bad_data_as_an_input_and_other_work_in_the_place_of_one() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("manifest.json");
        let told = |text: &str| {
            std::fs::write(&path, text).expect("write");
            let told = |error: StoreError| {
                let text = error.to_string();
                let text = text.rsplit_once(".json: ").expect("the path").1.to_owned();
                (error.exit(), text)
            };
            let read = || read_sealed::<Manifest>(&path).expect_err("no manifest");
            (told(read()), told(read().of_existing()))
        };
        let foreign = "not a manifest of fasta-shard";
        assert_eq!(
            told("{\"name\": \"a web app\"}"),
            (
                (Exit::Data, foreign.to_owned()),
                (
                    Exit::CannotCreate,
                    format!("exists and holds other work ({foreign}); --force replaces it")
                )
            )
        );
        let damaged = "damaged or altered: it does not match its seal";
        assert_eq!(
            told("{\"tool\": \"fasta-shard\"}"),
            (
                (Exit::Data, damaged.to_owned()),
                (Exit::Data, format!("{damaged}; --force replaces it"))
            )
        );
    }
}
