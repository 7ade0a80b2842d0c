//! The worker's side: it loads the model and computes batches until the run hangs up.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, unbounded};
use plmkit_contract::{EmbeddingLayout, Stop, exit_of};
use plmkit_esm2::{Buffers, ComputeOptions, set_threads};
use plmkit_store::PackedBatch;
use rustix::process::{Signal, set_parent_process_death_signal};
use tracing::subscriber::{NoSubscriber, with_default};

use super::message::{Answer, Load, Request, encode, receive, send};
use crate::batch::{Batch, BatchResult};
use crate::in_process::InProcess;
use crate::pipeline::{Compute, run_stages};
use crate::{EngineError, RunConfig};

/// Computes for the run at the other end of standard input, a socket, until the run hangs up. Other failures are sent to the run;
/// the returned error is that of the connection.
pub fn serve(config: &RunConfig) -> Result<(), EngineError> {
    // A hanging worker must not outlive its run.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| broken(error.into()))?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let line = UnixStream::from(stdin.map_err(broken)?);
    match serve_requests(config, &line) {
        // The run has gone, and has reported why.
        Err(EngineError::Connection(error))
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            ) =>
        {
            Ok(())
        }
        Ok(()) => Ok(()),
        Err(error @ EngineError::Connection(_)) => Err(error),
        Err(error) => {
            let failed = Answer::Failed {
                exit: exit_of(&error).code(),
                message: error.to_string(),
            };
            send(&mut &line, &failed).map_err(broken)
        }
    }
}

fn serve_requests(config: &RunConfig, line: &UnixStream) -> Result<(), EngineError> {
    let Some((Request::Load(load), _)) = next_request(line)? else {
        return Err(unexpected("no request to load"));
    };
    let config = RunConfig {
        compute: ComputeOptions {
            device: load.device,
            ..config.compute
        },
        threads: NonZeroUsize::new(load.threads).unwrap_or(NonZeroUsize::MIN),
        ..config.clone()
    };
    let stop = Stop::default();
    let mut model = load_model(&config, load, &stop)?;
    let info = model.info().clone();
    let layout = config.layout(&info, (load.stitched, load.labels))?;
    send(&mut &*line, &Answer::Ready(info)).map_err(broken)?;
    while let Some((request, body)) = next_request(line)? {
        if let Request::Measure(sample) = request {
            let parity = model.measure_parity(sample)?;
            send(&mut &*line, &Answer::Parity(parity)).map_err(broken)?;
        } else {
            return compute_batches(&mut model, &layout, line, batch(request, body)?);
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
    let load_model = || InProcess::load(config, load.largest_batch, stop);
    if load.logs {
        load_model()
    } else {
        with_default(NoSubscriber::new(), load_model)
    }
}

/// Computes the first batch and all others: one thread reads, one computes, one sends.
fn compute_batches(
    model: &mut InProcess<'_>,
    layout: &EmbeddingLayout,
    line: &UnixStream,
    first: Batch,
) -> Result<(), EngineError> {
    run_stages(
        // Unbounded: the run sends requests before it reads answers, so a worker must always read.
        unbounded(),
        |queue| {
            let mut next = Some(Ok(first));
            while let Some(batch) = next {
                let ended = batch.is_err() || queue.send(batch).is_err();
                next = if ended { None } else { next_batch(line) };
            }
        },
        |batches, deliver| {
            // However the computation ends, the reader must not wait for more batches.
            let _hang_up = HangUp(line);
            model.run(layout, batches, deliver)
        },
        |results| send_results(line, results),
    )
}

/// Closes the reading side of a connection on drop.
struct HangUp<'a>(&'a UnixStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Read);
    }
}

/// Receives the next request; `None` if the run has hung up.
fn next_request(line: &UnixStream) -> Result<Option<(Request, Option<RecordBatch>)>, EngineError> {
    receive(&mut &*line, &Buffers::default()).map_err(broken)
}

fn next_batch(line: &UnixStream) -> Option<Result<Batch, EngineError>> {
    let request = next_request(line).transpose()?;
    Some(request.and_then(|(request, body)| batch(request, body)))
}

/// Makes the batch of a request.
fn batch(request: Request, body: Option<RecordBatch>) -> Result<Batch, EngineError> {
    let (Request::Batch(mut batch), Some(rows)) = (request, body) else {
        return Err(unexpected("no batch"));
    };
    batch.packed = PackedBatch::new(rows).map_err(|what| unexpected(&what))?;
    Ok(*batch)
}

/// Sends results until there are no more.
fn send_results(
    line: &UnixStream,
    results: &Receiver<(Batch, BatchResult)>,
) -> Result<(), EngineError> {
    // Reused: fresh memory of this size is slow.
    let mut frame = Vec::new();
    while let Ok((_, result)) = results.recv() {
        let rows = result.rows.clone();
        encode(&mut frame, &Answer::Batch(result), Some(&rows)).map_err(broken)?;
        (&mut &*line).write_all(&frame).map_err(broken)?;
    }
    Ok(())
}

fn unexpected(what: &str) -> EngineError {
    broken(io::Error::new(ErrorKind::InvalidData, what))
}

fn broken(error: io::Error) -> EngineError {
    EngineError::Connection(error)
}
