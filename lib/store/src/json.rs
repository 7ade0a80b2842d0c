//! JSON files: reports, and sealed files such as manifests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use plmkit_contract::Sealed;
use plmkit_kit::is_stream;
use serde::Serialize;

use crate::input::read_input;
use crate::{AtomicFile, StoreError};

/// Writes `value` as indented JSON with a final newline, like [`write_report`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
    let text = text.map_err(StoreError::cannot_write(path))?;
    write_report(path, &(text + "\n"))
}

/// Writes a report to a file or a stream; `-` is standard output. A closed pipe is not an error.
pub fn write_report(path: &Path, text: &str) -> Result<(), StoreError> {
    if is_stream(path) {
        return match write_stream(path, text.as_bytes()) {
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => {
                let name = if path == "-" {
                    "standard output".as_ref()
                } else {
                    path
                };
                written.map_err(StoreError::cannot_write(name))
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
    // The stream may be a file that other processes write to.
    OpenOptions::new().append(true).open(path)?.write_all(text)
}

/// Writes `value` as sealed JSON, and publishes the file.
pub fn write_sealed(mut file: AtomicFile, value: &impl Sealed) -> Result<(), StoreError> {
    file.append(value.to_json().as_bytes())?;
    file.finish()
}

/// Reads and verifies sealed JSON.
pub fn read_sealed<T: Sealed>(path: &Path) -> Result<T, StoreError> {
    T::from_json(&read_input(path)?).map_err(|error| StoreError::content(path, error))
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Manifest;
    use plmkit_kit::{Exit, Failure};

    use super::*;

    #[test]
    fn a_foreign_manifest_is_bad_data_as_an_input_and_other_work_as_an_output() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("manifest.json");
        let foreign = "not a manifest of fasta-shard";
        let as_output = format!("exists and holds other work ({foreign}); --force replaces it");
        let newer = plmkit_contract::seal(&serde_json::json!({ "contract": "2" }));
        let version = "expected file contract version 1, found '2'";
        let other_version = format!("exists and holds other work ({version}); --force replaces it");
        let damaged = "damaged or altered: it does not match its seal";
        let replaceable = format!("{damaged}; --force replaces it");
        for (text, input, output) in [
            (
                "{\"name\": \"a web app\"}",
                (Exit::Data, foreign),
                (Exit::CannotCreate, &*as_output),
            ),
            (
                &newer,
                (Exit::Data, version),
                (Exit::CannotCreate, &*other_version),
            ),
            (
                "{\"tool\": \"fasta-shard\"}",
                (Exit::Data, damaged),
                (Exit::Data, &*replaceable),
            ),
        ] {
            std::fs::write(&path, text).expect("write");
            let read = || read_sealed::<Manifest>(&path).expect_err("no manifest");
            for (error, (exit, message)) in [(read(), input), (read().of_existing(), output)] {
                assert_eq!(error.exit(), exit, "{error}");
                assert!(
                    error.to_string().ends_with(&format!(".json: {message}")),
                    "{error}"
                );
            }
        }
    }
}
