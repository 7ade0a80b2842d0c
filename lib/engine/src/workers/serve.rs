//! The worker's side: it loads the model, computes what it is given, and ends when the run has gone.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, unbounded};
use plmkit_contract::{EmbeddingLayout, Stop, exit_of};
use plmkit_esm2::{Buffers, set_threads};
use rustix::process::{Signal, set_parent_process_death_signal};
use tracing::subscriber::{NoSubscriber, with_default};

use super::message::{Answer, BatchPlace, Load, Request, receive, send, write_frame};
use crate::backend::Backend;
use crate::batch::{Batch, BatchResult, QueuedBatch};
use crate::in_process::InProcess;
use crate::pipeline::run_stages;
use crate::{EngineError, RunConfig};

/// Computes for the run at the other end of standard input, a socket, until it hangs up. What goes wrong is told to that
/// run; the error is that nobody can be told.
pub fn serve(config: &RunConfig) -> Result<(), EngineError> {
    // A worker that hangs does not outlive its run.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| broken(error.into()))?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let line = UnixStream::from(stdin.map_err(broken)?);
    match serve_requests(config, &line) {
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

fn serve_requests(config: &RunConfig, line: &UnixStream) -> Result<(), EngineError> {
    let Some((Request::Load(load), _)) = request(line)? else {
        return Err(broken(ErrorKind::InvalidData.into()));
    };
    let config = RunConfig {
        device: load.device,
        threads: NonZeroUsize::new(load.threads).unwrap_or(NonZeroUsize::MIN),
        ..config.clone()
    };
    let stop = Stop::default();
    let mut model = load_model(&config, load, &stop)?;
    let info = model.info()?;
    let layout = info.layout(&config, (load.stitched, load.labels))?;
    send(&mut &*line, &Answer::Ready(info), None).map_err(broken)?;
    while let Some((asked, body)) = request(line)? {
        match asked {
            Request::Load(_) => return Err(broken(ErrorKind::InvalidData.into())),
            Request::Measure(sample) => {
                let parity = model.measure(sample)?;
                send(&mut &*line, &Answer::Parity(parity), None).map_err(broken)?;
            }
            Request::Batch(place) => {
                return compute_batches(&mut model, &layout, line, queued(place, body)?);
            }
        }
    }
    Ok(())
}

fn load_model<'a>(
    config: &'a RunConfig,
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

/// Computes the first batch and all that follow: one thread reads, one computes, one sends.
fn compute_batches(
    model: &mut InProcess<'_>,
    layout: &EmbeddingLayout,
    line: &UnixStream,
    first: QueuedBatch,
) -> Result<(), EngineError> {
    run_stages(
        // Without a bound: a run does not send before it reads, so one of the two must always read.
        unbounded(),
        |queue| {
            let mut next = Some(Ok(first));
            while let Some(batch) = next {
                let ended = batch.is_err() || queue.send(batch).is_err();
                next = if ended { None } else { next_batch(line) };
            }
        },
        |batches, deliver| {
            // However this ends: the reader may wait for batches that nobody computes any more.
            let _hang_up = HangUp(line);
            model.run(layout, batches, deliver)
        },
        |results| send_results(line, results),
    )
}

/// Ends the reading of a line on drop.
struct HangUp<'a>(&'a UnixStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Read);
    }
}

/// The next request of the run; `None` once it has gone.
fn request(line: &UnixStream) -> Result<Option<(Request, Option<RecordBatch>)>, EngineError> {
    receive(&mut &*line, &Buffers::default()).map_err(broken)
}

fn next_batch(line: &UnixStream) -> Option<Result<QueuedBatch, EngineError>> {
    match request(line).transpose()? {
        Ok((Request::Batch(place), body)) => Some(queued(place, body)),
        Ok(_) => Some(Err(broken(ErrorKind::InvalidData.into()))),
        Err(error) => Some(Err(error)),
    }
}

fn queued(place: BatchPlace, body: Option<RecordBatch>) -> Result<QueuedBatch, EngineError> {
    let batch = body
        .ok_or_else(|| "no rows".to_owned())
        .and_then(|rows| place.with_rows(rows));
    let batch = batch.map_err(|what| broken(io::Error::new(ErrorKind::InvalidData, what)))?;
    Ok(QueuedBatch { batch, saved: None })
}

/// Sends results until there are no more.
fn send_results(
    line: &UnixStream,
    results: &Receiver<(Batch, BatchResult)>,
) -> Result<(), EngineError> {
    // One for all: large memory is dear when it is new.
    let mut frame = Vec::new();
    while let Ok((Batch { index, .. }, result)) = results.recv() {
        let rows = result.rows.clone();
        let answer = Answer::Batch { index, result };
        write_frame(&mut frame, &answer, Some(&rows)).map_err(broken)?;
        (&mut &*line).write_all(&frame).map_err(broken)?;
    }
    Ok(())
}

fn broken(error: io::Error) -> EngineError {
    EngineError::Connection(error)
}
