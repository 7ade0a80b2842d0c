//! The progress of a validation.

use std::sync::{Mutex, PoisonError};

use plmkit_cli::{ProgressDisplay, ProgressMode};

/// The progress of a validation. `SpotCheck` and `Reading` begin a stage with its total; the others add to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Progress {
    SpotCheck { tokens: u64 },
    SpotChecked { tokens: u64 },
    Reading { rows: u64 },
    Read { rows: u64 },
}

/// Where progress is told, from any thread.
pub(crate) type Report<'a> = &'a (dyn Fn(Progress) + Sync);

/// Shows each stage of a validation as a bar.
pub(crate) fn with_bars<T>(quiet: bool, validate: impl FnOnce(Report<'_>) -> T) -> T {
    let bar = Mutex::new(None::<ProgressDisplay>);
    let ended = validate(&|told| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        let (unit, total) = match told {
            Progress::SpotCheck { tokens } => ("tokens", tokens),
            Progress::Reading { rows } => ("rows", rows),
            Progress::SpotChecked { tokens: more } | Progress::Read { rows: more } => {
                return bar.iter_mut().for_each(|bar| bar.advance(more));
            }
        };
        drop(bar.take());
        *bar = Some(ProgressDisplay::start(
            ProgressMode::Auto,
            quiet,
            unit,
            total,
        ));
    });
    let bar = bar.into_inner().unwrap_or_else(PoisonError::into_inner);
    drop(bar);
    ended
}
