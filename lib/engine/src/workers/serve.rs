//! The worker's side: it loads the model, computes what it is given, and ends when the run has gone.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, bounded, unbounded};
use plmkit_contract::{EmbeddingLayout, Stop, exit_of};
use plmkit_esm2::{Buffers, set_threads};
use rustix::process::{Signal, set_parent_process_death_signal};
use tracing::subscriber::{NoSubscriber, with_default};

use super::message::{Answer, Load, Place, Request, Results, put, receive, send};
use crate::facts::Facts;
use crate::in_process::InProcess;
use crate::output::Columns;
use crate::pipeline::RESULTS_AHEAD;
use crate::reader::Item;
use crate::run::Observer;
use crate::writer::{self, Finished};
use crate::{Config, EngineError};

/// Computes for the run at the other end of standard input, a socket, until it hangs up. What goes wrong is told to that
/// run; the error is that nobody can be told.
pub fn serve(config: &Config) -> Result<(), EngineError> {
    // A worker that hangs does not outlive its run.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| broken(error.into()))?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let line = UnixStream::from(stdin.map_err(broken)?);
    match work(config, &line) {
        Ok(()) => Ok(()),
        // A run that has gone has said why.
        Err(EngineError::Connection(error))
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            ) =>
        {
            Ok(())
        }
        Err(error @ EngineError::Connection(_)) => Err(error),
        Err(error) => {
            let failed = Answer::failed(exit_of(&error), error.to_string());
            send(&mut &line, &failed, None).map_err(broken)
        }
    }
}

fn work(config: &Config, line: &UnixStream) -> Result<(), EngineError> {
    let Some((Request::Load(load), _)) = request(line)? else {
        return Err(broken(ErrorKind::InvalidData.into()));
    };
    let config = Config {
        device: load.device,
        threads: NonZeroUsize::new(load.threads).unwrap_or(NonZeroUsize::MIN),
        ..config.clone()
    };
    let stop = Stop::default();
    let model = load_model(&config, load, &stop)?;
    let facts = Facts::of(&model.model, &config.outputs)?;
    let layout = facts.layout(&config, (load.stitched, load.labels))?;
    send(&mut &*line, &Answer::Ready(facts), None).map_err(broken)?;
    while let Some((asked, body)) = request(line)? {
        match asked {
            Request::Load(_) => return Err(broken(ErrorKind::InvalidData.into())),
            Request::Measure(sample) => {
                let parity = sample.measure(&model.model, &stop)?;
                send(&mut &*line, &Answer::Parity(parity), None).map_err(broken)?;
            }
            Request::Pack(place) => return packs(&model, &layout, line, item(place, body)?),
        }
    }
    Ok(())
}

fn load_model<'a>(
    config: &'a Config,
    load: Load,
    stop: &'a Stop,
) -> Result<InProcess<'a>, EngineError> {
    set_threads(config.threads);
    if load.speaks {
        InProcess::load(config, load.largest, stop)
    } else {
        with_default(NoSubscriber::new(), || {
            InProcess::load(config, load.largest, stop)
        })
    }
}

/// Computes the first pack and all that follow: one thread reads, one computes, one lays out and sends.
fn packs(
    model: &InProcess<'_>,
    layout: &EmbeddingLayout,
    line: &UnixStream,
    first: Item,
) -> Result<(), EngineError> {
    // Without a bound: a run does not send before it reads, so one of the two must always read.
    let (packs_in, packs) = unbounded();
    let (results, results_out) = bounded(RESULTS_AHEAD);
    thread::scope(|scope| {
        thread::Builder::new()
            .name("reader".into())
            .spawn_scoped(scope, move || {
                let mut next = Some(Ok(first));
                while let Some(item) = next {
                    let ended = item.is_err() || packs_in.send(item).is_err();
                    next = if ended { None } else { next_item(line) };
                }
            })?;
        // However this ends: the reader may wait for packs that nobody computes any more.
        let hang_up = HangUp(line);
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn_scoped(scope, move || answer(layout, line, &results_out))?;
        let computed = model.run(layout, &packs, &results, &mut Unseen);
        drop((packs, results, hang_up));
        let answered = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answered.and(computed)
    })
}

/// Ends the reading of a line on drop.
struct HangUp<'a>(&'a UnixStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Read);
    }
}

/// What the run asks for; `None` once it has gone.
fn request(line: &UnixStream) -> Result<Option<(Request, Option<RecordBatch>)>, EngineError> {
    receive(&mut &*line, &Buffers::default()).map_err(broken)
}

fn next_item(line: &UnixStream) -> Option<Result<Item, EngineError>> {
    match request(line) {
        Ok(Some((Request::Pack(place), body))) => Some(item(place, body)),
        Ok(Some(_)) => Some(Err(broken(ErrorKind::InvalidData.into()))),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    }
}

fn item(place: Place, body: Option<RecordBatch>) -> Result<Item, EngineError> {
    let job = body
        .ok_or_else(|| "no rows".to_owned())
        .and_then(|rows| place.job(rows));
    let job = job.map_err(|what| broken(io::Error::new(ErrorKind::InvalidData, what)))?;
    Ok(Item { job, saved: None })
}

/// Lays results out and sends them until there are no more.
fn answer(
    layout: &EmbeddingLayout,
    line: &UnixStream,
    results: &Receiver<Finished>,
) -> Result<(), EngineError> {
    let columns = Columns::new(layout);
    // One for all: large memory is dear when it is new.
    let mut frame = Vec::new();
    while let Ok(Finished { job, result }) = results.recv() {
        let writer::Results::Computed(embedded, timing) = result else {
            continue;
        };
        let laid = columns.lay(&job.pack, embedded)?;
        let answer = Answer::Pack(Results::of(&job, &laid, &timing));
        put(&mut frame, &answer, Some(&laid.rows)).map_err(broken)?;
        (&mut &*line).write_all(&frame).map_err(broken)?;
    }
    Ok(())
}

fn broken(error: io::Error) -> EngineError {
    EngineError::Connection(error)
}

/// The run shows how far it is.
struct Unseen;

impl Observer for Unseen {
    fn started(&mut self, _tokens: u64) {}
    fn advanced(&mut self, _tokens: u64) {}
    fn ended(&mut self) {}
}
