//! The work, and what people are told of it.

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::path_text;
use plmkit_sequence::{Config, Outcome, Target, make_shards};

use crate::args::Args;
use crate::summary::{summary, warnings};

pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let config = Config::try_from(args)?;
    match make_shards(&config, stop)? {
        Outcome::Made(manifest) => {
            let limit = match config.target {
                Target::MaxTokens(tokens) => Some(tokens.get()),
                Target::Shards(_) => None,
            };
            for warning in warnings(&manifest, limit) {
                tracing::warn!("{warning}");
            }
            tracing::info!("{}", summary(&manifest));
        }
        Outcome::AlreadyComplete => {
            let folder = path_text(&config.folder);
            tracing::info!(
                "{folder}: already complete: the same input and options, every shard verified"
            );
        }
        // The signal that asked for it decides the exit code.
        Outcome::Stopped => {}
    }
    Ok(Exit::Done)
}
