//! Locating the model of the command line.

use std::path::PathBuf;

use plmkit_cli::{ProgressDisplay, Stop};
use plmkit_contract::ModelName;
use plmkit_hub::{DownloadEvent, HubError, Settings, model_name, resolve};
use plmkit_kit::path_text;

use super::args::Args;

/// Returns the folder or weight file of the model. Fetches it if it is missing and `--download` is given.
pub(crate) fn locate(args: &Args, stop: &Stop) -> Result<PathBuf, HubError> {
    let mut progress: Option<ProgressDisplay> = None;
    let mut show = |event| match event {
        DownloadEvent::File(file, bytes) => {
            let model = path_text(&args.model);
            tracing::info!("{model}: fetching {file}, {bytes} bytes");
            let (mode, quiet) = (args.options.computation.progress, args.common.quiet);
            progress = Some(ProgressDisplay::start(mode, quiet, "bytes", bytes));
        }
        DownloadEvent::Bytes(bytes) => {
            if let Some(progress) = &mut progress {
                progress.advance(bytes);
            }
        }
        DownloadEvent::Complete => progress = None,
    };
    let download: Option<&mut dyn FnMut(_)> = if args.download { Some(&mut show) } else { None };
    let located = resolve(&args.model, &Settings::from_env(), download, stop);
    // A failed download leaves its progress bar open.
    show(DownloadEvent::Complete);
    if let Ok(path) = &located
        && let ModelName {
            revision: Some(commit),
            ..
        } = model_name(path)
        && *path != args.model
    {
        // A branch may have moved since it was fetched.
        let model = path_text(&args.model);
        tracing::info!("{model}: commit {commit}, from the Hub's cache");
    }
    located
}
