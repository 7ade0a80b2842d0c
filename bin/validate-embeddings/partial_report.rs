//! What was found in some files, as a file that is judged with those of other files.

use std::io::Read;
use std::path::Path;

use plmkit_check::Findings;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{ByteDigest, LIST_SHOWN, one_line, path_text};
use plmkit_store::{AtomicFile, StoreError, open_input};

/// The first words of a partial report; the program's version and the digest of what follows end the line.
const MAGIC: &str = "plmkit partial-report";

/// Writes what was found to a file.
pub(crate) fn write(findings: &Findings, path: &Path) -> Result<(), Fault> {
    let content = rmp_serde::to_vec(findings);
    let content = content.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
    let mut file = AtomicFile::create(path)?;
    file.append(header(&content).as_bytes())?;
    file.append(&content)?;
    Ok(file.finish()?)
}

/// Reads what [`write()`] wrote.
pub(crate) fn read(path: &Path) -> Result<Findings, Fault> {
    let mut bytes = Vec::new();
    let read = open_input(path)?.read_to_end(&mut bytes);
    read.map_err(StoreError::cannot_read(path))?;
    let damaged = |what: &str| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let (head, content) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
    if !head.starts_with(MAGIC.as_bytes()) {
        return Err(damaged("expected a partial report of validate-embeddings"));
    }
    if head != header(content).as_bytes() {
        let found = String::from_utf8_lossy(head);
        return Err(match found.split(' ').nth(2) {
            Some(version) if version != env!("CARGO_PKG_VERSION") => damaged(&format!(
                "expected a partial report of version {}, found {}: validate again",
                env!("CARGO_PKG_VERSION"),
                one_line(version, LIST_SHOWN)
            )),
            _ => damaged("damaged or altered: it does not match its digest"),
        });
    }
    rmp_serde::from_slice(content).map_err(|error| damaged(&error.to_string()))
}

fn header(content: &[u8]) -> String {
    let (version, digest) = (env!("CARGO_PKG_VERSION"), ByteDigest::compute(content));
    format!("{MAGIC} {version} {digest}\n")
}
