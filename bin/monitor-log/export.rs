//! `monitor-log export`.

mod http;
mod textfile;

use std::io;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::command::wait_for_end;
use plmkit_telemetry::export::{dcgm_text, prometheus_text};
use plmkit_telemetry::{Background, NoResult};
use tracing::warn;

use crate::End;
use crate::args::ExportArgs;
use crate::monitor::{Monitor, Snapshot};
use textfile::Textfile;

/// Serves or writes metrics until a signal, or writes them once.
pub(crate) fn export(args: &ExportArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    if let Some(path) = &args.textfile {
        let mut textfile = Textfile::at(path, &args.events)?;
        let mut monitor = open_monitor(args);
        textfile.write(&metrics(&monitor.take_snapshot(true), args.dcgm))?;
        if args.once {
            return Ok(Exit::Done);
        }
        // A file that cannot be written now may be later, for example when there is space again.
        let sampler = start_sampler(monitor, args, move |text| {
            textfile.write_or_warn(&text);
        })?;
        let signal = wait_for_end().map_err(|error| internal(&error))?;
        *end = Some(End::Signal(signal));
        // Stale values would be scraped forever. Before the sampler ends, which may take a while, and again after it, because
        // it may write once more.
        Textfile::remove(path);
        stop_sampler(sampler);
        Textfile::remove(path);
        return Ok(Exit::Done);
    }
    let listener = http::listen(args.listen)?;
    let mut monitor = open_monitor(args);
    let served = http::serve(listener, metrics(&monitor.take_snapshot(true), args.dcgm));
    let served = served.map_err(|error| internal(&error))?;
    let sampler = start_sampler(monitor, args, move |text| served.replace(text))?;
    let signal = wait_for_end().map_err(|error| internal(&error))?;
    *end = Some(End::Signal(signal));
    stop_sampler(sampler);
    Ok(Exit::Done)
}

fn open_monitor(args: &ExportArgs) -> Monitor {
    let mut monitor = Monitor::open(&args.driver, &args.events, args.keep);
    monitor.forget = Some(args.keep);
    monitor
}

/// Takes snapshots at an interval in a new thread, and hands their metrics to `put`.
fn start_sampler(
    mut monitor: Monitor,
    args: &ExportArgs,
    mut put: impl FnMut(String) + Send + 'static,
) -> Result<Background<()>, Fault> {
    let (interval, dcgm) = (args.interval, args.dcgm);
    let sampler = Background::start("sampler", move |stop| {
        while stop.pause(interval) {
            put(metrics(&monitor.take_snapshot(false), dcgm));
        }
    });
    sampler.map_err(|error| internal(&error))
}

/// Ends the sampler, or abandons it if it hangs. A panic has printed its own message.
fn stop_sampler(sampler: Background<()>) {
    if let Err(NoResult::Hangs) = sampler.stop() {
        warn!("the driver does not answer: ending without it");
    }
}

/// Logs the notes of a snapshot and returns its metrics.
fn metrics(snapshot: &Snapshot, dcgm: bool) -> String {
    snapshot.notes.iter().for_each(|note| warn!("{note}"));
    let mut text = prometheus_text(&snapshot.rows, &snapshot.runs);
    if dcgm {
        text += &dcgm_text(&snapshot.rows);
    }
    text
}

fn internal(error: &io::Error) -> Fault {
    let reason = io_text(error);
    let message = format!("cannot handle signals or start threads: {reason}");
    Fault::new(Exit::Internal, message)
}
