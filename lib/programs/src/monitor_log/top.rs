//! `monitor-log top`.

mod screen;
mod table;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use plmkit_cli::{Exit, Fault, print};

use super::args::TopArgs;
use super::monitor::{Monitor, Snapshot};
use super::record::End;

/// Older logs in folders belong to runs that are over.
const KEEP: Duration = Duration::from_hours(24);

/// Shows a live view on a terminal. Elsewhere, and if asked to, prints a snapshot.
pub(crate) fn top(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    if io::stdout().is_terminal() && !args.once && !args.json {
        return screen::show(args, end);
    }
    let snapshot = open(args).take_snapshot();
    for note in &snapshot.notes {
        tracing::warn!("{note}");
    }
    // A reader that has left is no failure.
    print(printed(args, &snapshot)).map(|_| Exit::Done)
}

fn open(args: &TopArgs) -> Monitor {
    Monitor::open(&args.sampling, &args.events, KEEP, Duration::MAX)
}

fn printed(args: &TopArgs, snapshot: &Snapshot) -> Vec<u8> {
    if args.json {
        let json = serde_json::to_string(snapshot).expect("numbers and texts");
        return (json + "\n").into_bytes();
    }
    view::printed(snapshot).into_bytes()
}
