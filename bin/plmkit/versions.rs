//! `versions.yml`: the versions of the programs and the revision of the model.

use std::fmt::Write;
use std::path::Path;

use plmkit_cli::{Fault, Stop};
use plmkit_store::write_report;

use crate::layout::VERSIONS_FILE;
use crate::model::revision;

/// The programs, which are of one release.
const PROGRAMS: [&str; 5] = [
    "fasta-shard",
    "pack-batches",
    "gpu-embed",
    "validate-embeddings",
    "monitor-log",
];

/// Writes the file.
pub(crate) fn write_versions(out: &Path, model: &str, stop: &Stop) -> Result<(), Fault> {
    let mut text = "plmkit:\n".to_owned();
    for program in PROGRAMS {
        let _ = writeln!(text, "  {program}: {}", env!("CARGO_PKG_VERSION"));
    }
    if let Some(revision) = revision(model, stop) {
        let _ = writeln!(text, "Model:\n  {model}: {revision}");
    }
    Ok(write_report(&out.join(VERSIONS_FILE), &text)?)
}
