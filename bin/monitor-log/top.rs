//! `monitor-log top`.

mod history;
mod keys;
pub(crate) mod query;
mod screen;
mod table;
mod view;

use std::env;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::ColorChoice;
use plmkit_cli::{Exit, Fault, print};
use plmkit_telemetry::live::ProcessReader;
use ratatui::crossterm::{style, terminal};

use crate::End;
use crate::args::TopArgs;
use crate::monitor::{Monitor, Snapshot};

/// Older logs in folders belong to runs that are over.
const KEEP: Duration = Duration::from_hours(24);

/// The columns of the compact form.
const COMPACT_WIDTH: usize = 40;

/// Shows a live view on a terminal. Elsewhere, and if asked to, prints snapshots.
pub(crate) fn top(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // Overrides NO_COLOR, which crossterm reads as well.
    style::force_color_output(is_colored(args.color));
    let is_printed = args.once || args.watch.is_some() || args.json || args.compact;
    if io::stdout().is_terminal() && !is_printed && args.query.is_empty() {
        return screen::show(args, end);
    }
    let mut monitor = open(args);
    let mut is_first = true;
    loop {
        let snapshot = monitor.take_snapshot();
        for note in &snapshot.notes {
            tracing::warn!("{note}");
        }
        let is_read = print(printed(args, &snapshot, is_first))?;
        match args.watch {
            Some(interval) if is_read => thread::sleep(interval),
            _ => return Ok(Exit::Done),
        }
        is_first = false;
    }
}

fn open(args: &TopArgs) -> Monitor {
    let mut monitor = Monitor::open(&args.sampling, &args.events, KEEP, Duration::MAX);
    monitor.processes = Some(ProcessReader::default());
    monitor
}

fn is_colored(choice: ColorChoice) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let is_off = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            io::stdout().is_terminal() && !is_off
        }
    }
}

fn printed(args: &TopArgs, snapshot: &Snapshot, is_first: bool) -> Vec<u8> {
    if !args.query.is_empty() {
        return query::csv(&args.query, &snapshot.rows, is_first);
    }
    if args.json {
        let json = serde_json::to_string(snapshot).expect("numbers and texts");
        return (json + "\n").into_bytes();
    }
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let width = match size {
        _ if args.compact => COMPACT_WIDTH,
        Some((width @ 1.., _)) => width.into(),
        _ => view::WIDE,
    };
    let text = view::printed(snapshot, width, is_colored(args.color));
    let before = match (is_terminal, is_first) {
        // The screen shows the last moment alone.
        (true, _) if args.watch.is_some() => "\x1b[H\x1b[J",
        (false, false) => "\n",
        _ => "",
    };
    (before.to_owned() + &text).into_bytes()
}
