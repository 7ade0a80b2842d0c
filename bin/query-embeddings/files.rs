//! `query-embeddings files`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plmkit_cli::{Exit, Fault, Stop, file, print};
use plmkit_dataset::embeddings_at;

use crate::warn;

/// List embeddings files that are one table, once they are verified: a JSON line for each, with its dataset
///
/// What lies at the path decides. Datasets must be whole, with the rows of their dataset.json, and must have passed their validation.
/// Files without a dataset are verified alone, with a warning. The samples of a folder of results are in the order of its last run;
/// those that it did not validate are left out, with a warning.
#[derive(Debug, clap::Args)]
pub(crate) struct FilesArgs {
    /// Folder of results, of a sample or of embeddings files; dataset.json; or an embeddings file
    #[arg(value_name = "RESULTS", value_parser = file())]
    results: PathBuf,

    /// Leave out samples that the last run did not have
    #[arg(long)]
    last_run: bool,

    /// Verify nothing, and list samples that the last run did not validate, too
    #[arg(long)]
    unverified: bool,
}

impl FilesArgs {
    pub(crate) fn run(&self, stop: &Stop) -> Result<Exit, Fault> {
        let verify = !self.unverified;
        for (dataset, file) in &embeddings_at(&self.results, verify, self.last_run, warn, stop)? {
            let line = BTreeMap::from([("dataset", dataset), ("file", file)]);
            let line = serde_json::to_string(&line)
                .map_err(|error| Fault::of_path(Exit::Data, file, error))?;
            print(line + "\n")?;
        }
        Ok(Exit::Done)
    }
}
