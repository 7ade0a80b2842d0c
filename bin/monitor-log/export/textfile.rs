//! The file that `node_exporter`'s textfile collector reads.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, keep_apart, keep_renameable};
use plmkit_contract::{io_text, path_text};
use plmkit_store::AtomicFile;
use tracing::{info, warn};

/// A file that is there whole or not at all: a collector may read at any time.
pub(super) struct Textfile {
    path: PathBuf,
    failing: bool,
}

impl Textfile {
    /// A usage fault if the collector would not take the file, or if it is one of those that are read.
    pub(super) fn at(path: &Path, events: &[PathBuf]) -> Result<Self, Fault> {
        if path.extension().is_none_or(|extension| extension != "prom") {
            return Err(Fault::usage(format!(
                "--textfile {}: expected a name that ends in .prom, as the textfile collector does",
                path_text(path)
            )));
        }
        keep_renameable(&[("--textfile", path)])?;
        let events: Vec<NamedPath> = events
            .iter()
            .map(|path| ("--events", path.as_path()))
            .collect();
        keep_apart(&events, &[("--textfile", path)])?;
        Ok(Self {
            path: path.to_owned(),
            failing: false,
        })
    }

    /// Replaces the file.
    pub(super) fn write(&self, text: &str) -> Result<(), Fault> {
        let mut file = AtomicFile::create(&self.path)?;
        file.write_all(text.as_bytes()).map_err(|error| {
            let path = path_text(&self.path);
            Fault::new(
                Exit::Io,
                format!("{path}: cannot write: {}", io_text(&error)),
            )
        })?;
        Ok(file.finish()?)
    }

    /// The same; the first of several failures is said, and the end of them.
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

    /// Removes the file, if it is there.
    pub(super) fn remove(path: &Path) {
        let _ = fs::remove_file(path);
    }
}
