//! Reports, and manifests as JSON.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

use plmkit_contract::{Sealed, is_stream};
use serde::Serialize;

use crate::open::open_input;
use crate::{AtomicFile, StoreError};

/// Bytes of a file that is read. A manifest has some 200 bytes a shard.
const JSON_BYTES: u64 = 256 << 20;

/// Writes `value` as indented JSON with a final newline, where [`write_report`] does.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
    let text = text.map_err(StoreError::cannot_write(path))?;
    write_report(path, &(text + "\n"))
}

/// Writes the whole of a report: a file, or what a stream gets. `-` is standard output. A reader that has seen enough and left is no
/// failure.
pub fn write_report(path: &Path, text: &str) -> Result<(), StoreError> {
    if is_stream(path) {
        return match write_stream(path, text.as_bytes()) {
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => {
                let is_stdout = path == "-";
                let named = if is_stdout {
                    "standard output".as_ref()
                } else {
                    path
                };
                written.map_err(StoreError::cannot_write(named))
            }
        };
    }
    let mut file = AtomicFile::create(path)?;
    file.append(text.as_bytes())?;
    file.finish()
}

fn write_stream(path: &Path, text: &[u8]) -> io::Result<()> {
    if path == "-" || path == "/dev/stdout" {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(text).and_then(|()| stdout.flush());
    }
    // Behind it may be a file with more in it.
    OpenOptions::new().append(true).open(path)?.write_all(text)
}

/// Writes `value` as JSON with a seal.
pub fn write_sealed(mut file: AtomicFile, value: &impl Sealed) -> Result<(), StoreError> {
    file.append(value.to_json().as_bytes())?;
    file.finish()
}

/// Reads JSON with a seal and verifies it.
pub fn read_sealed<T: Sealed>(path: &Path) -> Result<T, StoreError> {
    let mut text = Vec::new();
    open_input(path)?
        .take(JSON_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(StoreError::cannot_read(path))?;
    if text.len() as u64 > JSON_BYTES {
        return Err(StoreError::malformed(
            path,
            format_args!("expected a {} of at most {JSON_BYTES} bytes", T::WHAT),
        ));
    }
    T::from_json(&text).map_err(|error| StoreError::sealed(path, &error))
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
