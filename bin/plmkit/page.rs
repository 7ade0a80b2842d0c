//! `RESULTS/index.html`: one page for a run.

use std::path::PathBuf;

use plmkit_cli::{Common, Exit, Fault, Stop, file};

/// Write index.html, the page of a folder of results
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Folder of results
    #[arg(value_name = "RESULTS", value_parser = file())]
    results: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl ReportArgs {
    pub(crate) fn run(self, _stop: &Stop) -> Result<Exit, Fault> {
        let _ = self.results;
        Ok(Exit::Done)
    }
}
