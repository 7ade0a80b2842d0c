//! Runs the program and prints its messages.

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_kit::path_text;
use plmkit_sequence::{ShardConfig, make_shards};

use super::args::Args;
use super::summary::{summary, warnings};

/// Cuts FASTA files into shards, unless they are cut already.
pub fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let config = ShardConfig::try_from(args)?;
    let Some(manifest) = make_shards(&config, stop)? else {
        let folder = path_text(&config.folder);
        tracing::info!(
            "{folder}: already complete: the same input and options, every shard verified"
        );
        return Ok(Exit::Done);
    };
    for warning in warnings(&manifest, config.options.target) {
        tracing::warn!("{warning}");
    }
    tracing::info!("{}", summary(&manifest));
    Ok(Exit::Done)
}
