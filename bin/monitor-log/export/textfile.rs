//! The file that `node_exporter`'s textfile collector reads.

use std::fs;
use std::path::{Path, PathBuf};

use plmkit_cli::{Fault, NamedPath, keep_apart, keep_renameable};
use plmkit_contract::path_text;
use plmkit_store::write_report;
use tracing::{info, warn};

/// A file that is written atomically: the collector may read at any time.
pub(super) struct Textfile {
    path: PathBuf,
    failing: bool,
}

impl Textfile {
    /// Checks the path. A name that the collector ignores, or a path that is an input, is a usage fault.
    pub(super) fn at(path: &Path, events: &[PathBuf]) -> Result<Self, Fault> {
        if path.extension().is_none_or(|extension| extension != "prom") {
            return Err(Fault::usage(format!(
                "--textfile {}: expected a name that ends in .prom, as the textfile collector does",
                path_text(path)
            )));
        }
        keep_renameable(&[("--textfile", path)])?;
        // It may be beside the logs.
        let events = events.iter().filter(|path| !path.is_dir());
        let events = events.map(|path| ("--events", path.as_path()));
        let events: Vec<NamedPath> = events.collect();
        keep_apart(&events, &[("--textfile", path)])?;
        Ok(Self {
            path: path.to_owned(),
            failing: false,
        })
    }

    /// Replaces the file.
    pub(super) fn write(&self, text: &str) -> Result<(), Fault> {
        Ok(write_report(&self.path, text)?)
    }

    /// Replaces the file. Logs the first of several failures, and their end.
    pub(super) fn write_or_warn(&mut self, text: &str) {
        match (self.write(text), self.failing) {
            (Err(fault), false) => {
                warn!("{}; trying again", fault.message());
                self.failing = true;
            }
            (Ok(()), true) => {
                info!("{}: written again", path_text(&self.path));
                self.failing = false;
            }
            _ => {}
        }
    }

    /// Removes the file, if it exists.
    pub(super) fn remove(path: &Path) {
        let _ = fs::remove_file(path);
    }
}
