//! `monitor-log top`.

pub(crate) mod query;
mod screen;
mod table;
mod view;

use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::ColorChoice;
use plmkit_cli::{Exit, Fault, print};
use plmkit_telemetry::live::ProcessReader;
use ratatui::crossterm::{style, terminal};

use super::args::TopArgs;
use super::monitor::{Monitor, Snapshot};
use super::record::End;

/// Older logs in folders belong to runs that are over.
const KEEP: Duration = Duration::from_hours(24);

/// Shows a live view on a terminal. Elsewhere, and if asked to, prints a snapshot.
pub(crate) fn top(args: &TopArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // Overrides NO_COLOR, which crossterm reads as well.
    style::force_color_output(is_colored(args.color));
    let is_printed = args.once || args.json || !args.query.is_empty();
    if io::stdout().is_terminal() && !is_printed {
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

fn printed(args: &TopArgs, snapshot: &Snapshot) -> Vec<u8> {
    if !args.query.is_empty() {
        return query::csv(&args.query, &snapshot.rows);
    }
    if args.json {
        let json = serde_json::to_string(snapshot).expect("numbers and texts");
        return (json + "\n").into_bytes();
    }
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let width = match size {
        Some((width @ 1.., _)) => width.into(),
        _ => view::WIDE,
    };
    view::printed(snapshot, width, is_colored(args.color)).into_bytes()
}
