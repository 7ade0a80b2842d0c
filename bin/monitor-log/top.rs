//! `monitor-log top`.

mod history;
mod lines;
mod screen;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use plmkit_cli::{Exit, Fault, print};

use crate::End;
use crate::args::TopArgs;
use crate::monitor::Monitor;

/// Older logs in folders belong to runs that are over.
const KEEP: Duration = Duration::from_hours(24);

/// Shows a live view on a terminal, and one snapshot elsewhere.
pub(crate) fn top(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    if io::stdout().is_terminal() && !args.once {
        return screen::show(args, KEEP, end);
    }
    let snapshot = Monitor::open(&args.driver, &args.events, KEEP).take_snapshot(true);
    for note in &snapshot.notes {
        tracing::warn!("{note}");
    }
    print(lines::plain(&snapshot))?;
    Ok(Exit::Done)
}
