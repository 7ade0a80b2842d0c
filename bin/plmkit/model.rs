//! The model, before anything is computed with it.

use std::path::Path;

use plmkit_cli::{Common, Exit, Fault, Given, Stop, print};
use plmkit_esm2::Device;
use plmkit_hub::{ModelId, Settings, model_name, resolve};
use plmkit_programs::gpu_embed::{self, Session};

/// Opens the model on one device, or fetches it if `may_fetch`. `None` for one that is still to be fetched, and after a stop.
pub(crate) fn open(
    args: &gpu_embed::Args,
    may_fetch: bool,
    stop: &Stop,
) -> Result<Option<Session>, Fault> {
    if args.options.computation.device == Device::All {
        let what = "--device all: expected one device; a run computes on all";
        return Err(Fault::usage(what));
    }
    let is_here = || resolve(&args.model, &Settings::from_env(), None, stop).is_ok();
    if args.download && !may_fetch && !is_here() {
        return Ok(None);
    }
    Session::open(args, stop).map_err(|fault| with_owner(&args.model, fault))
}

/// Fetches a model of the Hub unless it is in the local cache, checks it, and prints its folder.
pub(crate) fn fetch(model: &str, common: Common, stop: &Stop) -> Result<Exit, Fault> {
    let options = Given::parse(["--device=cpu"])?;
    let mut args = gpu_embed::Args::new(model.into(), options, common);
    args.download = true;
    let find = || resolve(&args.model, &Settings::from_env(), None, stop);
    let is_here = find().is_ok();
    if open(&args, true, stop)?.is_none() {
        return Ok(Exit::Done);
    }
    if is_here {
        tracing::info!("{model}: already there");
    }
    print(format!("{}\n", find()?.display())).map(|_| Exit::Done)
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
    let hint = "a model of the Hub is named with its owner, as in facebook/esm2_t33_650M_UR50D";
    fault.reworded(|message| format!("{message}; {hint}"))
}
