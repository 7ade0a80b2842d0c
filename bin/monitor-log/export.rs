//! `monitor-log export`.

mod http;
mod textfile;

use std::io;
use std::net::TcpListener;

use plmkit_cli::{Exit, Fault};
use plmkit_telemetry::Background;
use plmkit_telemetry::command::wait_for_end;
use plmkit_telemetry::export::prometheus_text;
use tracing::warn;

use crate::End;
use crate::args::ExportArgs;
use crate::monitor::{Monitor, Snapshot};
use textfile::Textfile;

enum Output {
    File(Textfile),
    Http(TcpListener),
}

/// Serves or writes metrics until a signal, or writes them once.
pub(crate) fn export(args: &ExportArgs, end: &mut Option<End>) -> Result<Exit, Fault> {
    // A path or a port that cannot be used is reported before the driver is loaded, which may take seconds.
    let output = match &args.textfile {
        Some(path) => Output::File(Textfile::at(path, &args.events)?),
        None => Output::Http(http::listen(args.listen)?),
    };
    let interval = args.interval;
    if interval > http::STALE / 2 && !args.once {
        warn!(
            "--interval is more than 30s: values older than 60s count as those of a driver that hangs, for /healthz and the \
             alert PlmkitExporterStale"
        );
    }
    let mut monitor = Monitor::open(&args.driver, &args.events, args.drop_after);
    monitor.forget = Some(args.drop_after);
    let first = metrics(&monitor.take_snapshot());
    let mut put: Box<dyn FnMut(String) + Send> = match output {
        Output::File(mut textfile) => {
            textfile.write(&first)?;
            // A file that cannot be written now may be later, for example when there is space again.
            Box::new(move |text| textfile.write_or_warn(&text))
        }
        Output::Http(listener) => {
            let served = http::serve(listener, first).map_err(|error| internal(&error))?;
            Box::new(move |text| served.replace(text))
        }
    };
    if args.once {
        return Ok(Exit::Done);
    }
    let sampler = Background::start("sampler", move |stop| {
        while stop.pause(interval) {
            put(metrics(&monitor.take_snapshot()));
        }
    });
    let sampler = sampler.map_err(|error| internal(&error))?;
    let signal = wait_for_end().map_err(|error| internal(&error))?;
    *end = Some(End::Signal(signal));
    // Stale values would be scraped forever. Before the sampler ends, which may take a while, and again after it, because
    // it may write once more.
    let remove = || args.textfile.iter().for_each(|path| Textfile::remove(path));
    remove();
    sampler.stop("the driver does not answer: ending without it");
    remove();
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
