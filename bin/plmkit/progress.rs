//! One bar for a whole run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use plmkit_cli::ProgressDisplay;
use plmkit_contract::Dtype;
use plmkit_programs::gpu_embed::Session;
use plmkit_programs::validate_embeddings::{Progress, spot_check_tokens};

use crate::run::Run;
use crate::sample::SampleFolder;
use crate::samples::Sample;

/// The places of the stages that follow the embedding.
const CHECKING: usize = 1;
const READING: usize = 2;

/// The bar, which threads share.
pub(crate) struct RunBar(Mutex<ProgressDisplay>);

impl RunBar {
    /// Starts the bar of a run that embeds some tokens, of which some are done, and then validates `samples`.
    pub(crate) fn start(
        run: &Run,
        session: &Session,
        tokens: u64,
        done: u64,
        samples: &[&Sample],
    ) -> Self {
        let (mut checked, mut rows) = (0, 0);
        for sample in samples {
            let folder = SampleFolder::new(run, sample);
            // What is wrong with a manifest, the validation tells.
            if !folder.is_finished()
                && let Ok(manifest) = folder.manifest()
            {
                checked += spot_check_tokens(&run.programs.validate_embeddings, &manifest);
                rows += manifest.rows;
            }
        }
        let stages = [
            ("embedding", "tokens", tokens),
            ("checking", "tokens", checked),
            ("reading", "rows", rows),
        ];
        let quiet = run.args.common.quiet || tokens + rows == 0;
        let mode = run.args.gpu_embed.computation.progress;
        let mut display = ProgressDisplay::of_stages(mode, quiet, &stages).resumed_at(done);
        let info = session.engine().info();
        if info.device_kind() == "cpu" && info.dtype == Dtype::F32 {
            display = display.like_first(CHECKING);
        }
        Self(Mutex::new(display))
    }

    /// The bar, for one of its threads.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ProgressDisplay> {
        locked(&self.0)
    }

    /// Shows how far a validation is.
    pub(crate) fn show(&self, progress: Progress) {
        let mut display = self.lock();
        match progress {
            Progress::SpotCheck { .. } => display.begin(CHECKING),
            Progress::Reading { .. } => display.begin(READING),
            Progress::SpotChecked { tokens } => display.advance(tokens),
            Progress::Read { rows } => display.advance(rows),
        }
    }
}

/// Locks what threads share; a thread that panicked ends the run anyhow.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
