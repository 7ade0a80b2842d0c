//! Locating the model of the command line.

use std::path::PathBuf;

use plmkit_cli::{ProgressDisplay, Stop};
use plmkit_contract::{ModelName, path_text};
use plmkit_hub::{DownloadProgress, HubError, Settings, model_name, resolve};

use crate::args::Args;

/// Returns the folder or weight file of the model. Fetches it if it is missing and `--download` is given.
pub(crate) fn locate(args: &Args, stop: &Stop) -> Result<PathBuf, HubError> {
    let mut screen = Screen {
        args,
        progress: None,
    };
    let download = args
        .download
        .then_some(&mut screen as &mut dyn DownloadProgress);
    let located = resolve(&args.model, &Settings::from_env(), download, stop);
    // A failed download leaves its progress bar open.
    screen.end_file();
    if let Ok(path) = &located
        && !args.worker
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

/// Shows the progress of a download.
struct Screen<'a> {
    args: &'a Args,
    progress: Option<ProgressDisplay>,
}

impl DownloadProgress for Screen<'_> {
    fn start_file(&mut self, file: &str, bytes: u64) {
        let model = path_text(&self.args.model);
        tracing::info!("{model}: fetching {file}, {bytes} bytes");
        let (mode, quiet) = (self.args.progress, self.args.common.quiet);
        self.progress = Some(ProgressDisplay::start(mode, quiet, "bytes", bytes));
    }

    fn add_bytes(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress.advance(bytes);
        }
    }

    fn end_file(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
    }
}
