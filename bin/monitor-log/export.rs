//! `monitor-log export`.

mod http;
mod textfile;

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::PATIENCE;
use plmkit_telemetry::command::wait_for_end;
use plmkit_telemetry::export::{Family, families};
use tracing::warn;

use crate::End;
use crate::args::ExportArgs;
use crate::watch::{Moment, Watch};
use http::Endpoint;
use textfile::Textfile;

/// Serves or writes metrics until a signal, or writes them once.
pub(crate) fn export(args: &ExportArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    if let Some(path) = &args.textfile {
        let mut textfile = Textfile::at(path, &args.events)?;
        let mut watch = watch(args);
        textfile.write(&told(&watch.look_through()))?;
        if args.once {
            return Ok(Exit::Done);
        }
        let sampler = Sampler::start(watch, args.interval, move |families| {
            // One that cannot be written now may be later, when there is room again.
            textfile.write_or_warn(&families);
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
        let mut watch = watch(args);
        let snapshot = endpoint
            .serve(told(&watch.look_through()))
            .map_err(|error| internal(&error))?;
        let sampler = Sampler::start(watch, args.interval, move |families| {
            snapshot.replace(families);
        })?;
        *end = Some(End::Signal(
            wait_for_end().map_err(|error| internal(&error))?,
        ));
        sampler.finish();
    }
    Ok(Exit::Done)
}

fn watch(args: &ExportArgs) -> Watch {
    Watch::open(&args.driver, &args.events, args.keep).forgetting(args.keep)
}

/// Looks at everything at an interval, in a thread of its own.
struct Sampler {
    stop: Sender<()>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

impl Sampler {
    /// Hands the families of each interval to `put`.
    fn start(
        mut watch: Watch,
        interval: Duration,
        mut put: impl FnMut(Vec<Family>) + Send + 'static,
    ) -> Result<Self, Fault> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                let _end: Sender<()> = end;
                // The channel is the clock: nothing wakes the thread between two samples but the end.
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    put(told(&watch.look()));
                }
            })
            .map_err(|error| internal(&error))?;
        Ok(Self { stop, ended })
    }

    /// Waits for the end of what is being looked at, and leaves behind what hangs.
    fn finish(self) {
        // A sampler that panicked has ended already, and said so.
        let _ = self.stop.send(());
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            warn!("the driver does not answer: ending without it");
        }
    }
}

/// Says what people should know; the rest is for Prometheus.
fn told(moment: &Moment) -> Vec<Family> {
    moment.notes.iter().for_each(|note| warn!("{note}"));
    families(&moment.rows, &moment.runs)
}

fn internal(error: &io::Error) -> Fault {
    Fault::new(
        Exit::Internal,
        format!("cannot handle signals or start threads: {}", io_text(error)),
    )
}
