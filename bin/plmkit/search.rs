//! `plmkit search`.

use plmkit_cli::{Common, Exit, Fault, Stop};

/// Find the proteins of a dataset that are nearest to those of a FASTA
#[derive(Debug, clap::Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

impl SearchArgs {
    pub(crate) fn run(self, _stop: &Stop) -> Result<Exit, Fault> {
        Ok(Exit::Done)
    }
}
