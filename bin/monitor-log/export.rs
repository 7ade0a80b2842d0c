//! `monitor-log export`.

mod http;
mod textfile;

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::STOP_TIMEOUT;
use plmkit_telemetry::command::wait_for_end;
use plmkit_telemetry::export::prometheus_text;
use tracing::warn;

use crate::End;
use crate::args::ExportArgs;
use crate::monitor::{Monitor, Snapshot};
use http::Endpoint;
use textfile::Textfile;

/// Serves or writes metrics until a signal, or writes them once.
pub(crate) fn export(args: &ExportArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    if let Some(path) = &args.textfile {
        let mut textfile = Textfile::at(path, &args.events)?;
        let mut monitor = open_monitor(args);
        textfile.write(&metrics(&monitor.look_through()))?;
        if args.once {
            return Ok(Exit::Done);
        }
        let sampler = Sampler::start(monitor, args.interval, move |text| {
            // One that cannot be written now may be later, when there is room again.
            textfile.write_or_warn(&text);
        })?;
        *end = Some(End::Signal(
            wait_for_end().map_err(|error| internal(&error))?,
        ));
        // What is not measured any more would be scraped for ever. Before the sampler ends, which may take a while, and after
        // it may have been written once more.
        Textfile::remove(path);
        sampler.finish();
        Textfile::remove(path);
    } else {
        let endpoint = Endpoint::listen(args.listen)?;
        let mut monitor = open_monitor(args);
        let served = endpoint
            .serve(metrics(&monitor.look_through()))
            .map_err(|error| internal(&error))?;
        let sampler = Sampler::start(monitor, args.interval, move |text| {
            served.replace(text);
        })?;
        *end = Some(End::Signal(
            wait_for_end().map_err(|error| internal(&error))?,
        ));
        sampler.finish();
    }
    Ok(Exit::Done)
}

fn open_monitor(args: &ExportArgs) -> Monitor {
    Monitor::open(&args.driver, &args.events, args.keep).forgetting(args.keep)
}

/// Looks at everything at an interval, in a thread of its own.
struct Sampler {
    stop: Sender<()>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

impl Sampler {
    /// Hands the metrics of each interval to `put`.
    fn start(
        mut monitor: Monitor,
        interval: Duration,
        mut put: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, Fault> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                let _end: Sender<()> = end;
                // The channel is the clock: nothing wakes the thread between two samples but the end.
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    put(metrics(&monitor.look()));
                }
            })
            .map_err(|error| internal(&error))?;
        Ok(Self { stop, ended })
    }

    /// Waits for the end of what is being looked at, and leaves behind what hangs.
    fn finish(self) {
        // A sampler that panicked has ended already, and said so.
        let _ = self.stop.send(());
        if self.ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            warn!("the driver does not answer: ending without it");
        }
    }
}

/// Logs the notes of a snapshot; the rest is for Prometheus.
fn metrics(snapshot: &Snapshot) -> String {
    snapshot.notes.iter().for_each(|note| warn!("{note}"));
    prometheus_text(&snapshot.rows, &snapshot.runs)
}

fn internal(error: &io::Error) -> Fault {
    Fault::new(
        Exit::Internal,
        format!("cannot handle signals or start threads: {}", io_text(error)),
    )
}
