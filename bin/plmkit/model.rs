//! The model, before anything is computed with it.

use std::path::Path;

use plmkit_cli::{Exit, Fault, Stop, parse, print};
use plmkit_esm2::read_config;
use plmkit_hub::{ModelId, Settings, model_name, resolve};
use plmkit_programs::gpu_embed::{self, Session};

use crate::args::Fetched;

/// Opens the model, or fetches it if `may_fetch`. `None` for one that is still to be fetched, and after a stop.
pub(crate) fn open(
    args: &gpu_embed::Args,
    may_fetch: bool,
    stop: &Stop,
) -> Result<Option<Session>, Fault> {
    let is_here = || resolve(&args.model, &Settings::from_env(), None, stop).is_ok();
    if args.download && !may_fetch && !is_here() {
        return Ok(None);
    }
    Session::open(args, stop).map_err(|fault| with_owner(&args.model, fault))
}

/// Fetches a model of the Hub unless it is in the local cache, and prints its folder.
pub(crate) fn fetch(fetched: &Fetched, stop: &Stop) -> Result<Exit, Fault> {
    let model = format!("--model={}", fetched.model);
    let mut args: gpu_embed::Args = parse(&["--download".to_owned(), "--probe".to_owned(), model])?;
    args.common = fetched.common.clone();
    let is_here = resolve(&args.model, &Settings::from_env(), None, stop).is_ok();
    let Some(path) = gpu_embed::find(&args, stop)? else {
        return Ok(Exit::Done);
    };
    let read = read_config(&path).map_err(Fault::from);
    read.map_err(|fault| with_owner(&args.model, fault))?;
    if is_here {
        tracing::info!("{}: already there", fetched.model);
    }
    print(format!("{}\n", path.display())).map(|_| Exit::Done)
}

/// The commit of a model of the Hub that is in the local cache.
pub(crate) fn revision(name: &str, stop: &Stop) -> Option<String> {
    let path = Path::new(name);
    ModelId::parse(name).filter(|_| !path.exists())?;
    let snapshot = resolve(path, &Settings::from_env(), None, stop).ok()?;
    model_name(&snapshot).revision
}

/// Adds to the error of a bare name of the Hub that its owner is missing.
fn with_owner(model: &Path, fault: Fault) -> Fault {
    let name = model.to_string_lossy();
    if fault.exit() != Exit::NoInput || !name.starts_with("esm") || name.contains('/') {
        return fault;
    }
    let message = fault.message();
    Fault::new(
        Exit::NoInput,
        format!(
            "{message}; a model of the Hub is named with its owner, as in facebook/esm2_t33_650M_UR50D"
        ),
    )
}
