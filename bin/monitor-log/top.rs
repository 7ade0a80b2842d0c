//! `monitor-log top`.

mod history;
mod lines;
mod screen;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault, print};

use crate::End;
use crate::args::TopArgs;
use crate::watch::Watch;

/// Logs in folders that are older than this are of runs that are over.
const KEEP: Duration = Duration::from_hours(24);

/// A view that changes, where somebody watches; elsewhere one moment.
pub(crate) fn top(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    let watched = io::stdout().is_terminal() && !args.once;
    if watched && !args.json {
        return screen::show(args, KEEP, end);
    }
    let mut watch = Watch::open(&args.driver, &args.events, KEEP);
    loop {
        let moment = watch.look_through();
        moment
            .notes
            .iter()
            .for_each(|note| tracing::warn!("{note}"));
        print(if args.json {
            lines::json(&moment)
        } else {
            lines::plain(&moment)
        })?;
        if !watched {
            return Ok(Exit::Done);
        }
        thread::sleep(args.interval);
    }
}
