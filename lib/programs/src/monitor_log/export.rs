//! `monitor-log export`.

mod http;

use std::io;
use std::sync::PoisonError;
use std::thread;

use plmkit_cli::{Exit, Fault};
use plmkit_telemetry::command::wait_for_end;
use plmkit_telemetry::export::prometheus_text;
use tracing::warn;

use super::args::ExportArgs;
use super::monitor::{Monitor, Snapshot};
use super::record::End;

/// Serves metrics until a signal.
pub(crate) fn export(args: &ExportArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // A port that cannot be used is reported before the driver is loaded, which may take seconds.
    let listener = http::listen(args.listen)?;
    let interval = args.sampling.interval;
    let keep = args.drop_after;
    let mut monitor = Monitor::open(&args.sampling, &args.events, keep, keep);
    let served = http::ServedText::new(metrics(&monitor.take_snapshot()).into());
    http::serve(listener, served.clone()).map_err(|error| internal(&error))?;
    let sample = move || {
        loop {
            thread::sleep(interval);
            let text = metrics(&monitor.take_snapshot());
            *served.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
    };
    let sampler = thread::Builder::new().name("sampler".to_owned());
    let sampler = sampler.spawn(sample);
    sampler.map_err(|error| internal(&error))?;
    let signal = wait_for_end().map_err(|error| internal(&error))?;
    *end = Some(End::Signal(signal));
    Ok(Exit::Done)
}

/// Logs the notes of a snapshot and returns its metrics.
fn metrics(snapshot: &Snapshot) -> String {
    snapshot.notes.iter().for_each(|note| warn!("{note}"));
    prometheus_text(&snapshot.rows, &snapshot.runs)
}

fn internal(error: &io::Error) -> Fault {
    let what = "cannot handle signals or start threads";
    Fault::of_system(Exit::Internal, what, error)
}
