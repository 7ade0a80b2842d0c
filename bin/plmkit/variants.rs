//! `plmkit variants`.

use plmkit_cli::{Common, Exit, Fault, Stop};

/// Score the variants of a table
#[derive(Debug, clap::Args)]
pub(crate) struct VariantsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

impl VariantsArgs {
    pub(crate) fn run(self, _stop: &Stop) -> Result<Exit, Fault> {
        Ok(Exit::Done)
    }
}
