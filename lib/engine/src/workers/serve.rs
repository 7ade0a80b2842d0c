//! The worker's side: it loads the model and computes batches until the run hangs up.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crossbeam_channel::unbounded;
use plmkit_contract::{Labels, Stop, exit_of};
use plmkit_esm2::{Buffers, ComputeOptions, set_threads};
use plmkit_store::PackedBatch;
use rustix::process::{Signal, set_parent_process_death_signal};
use tracing::subscriber::{NoSubscriber, with_default};

use super::message::{Message, encode, receive, send};
use crate::batch::Batch;
use crate::embedder::Embedder;
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
            let failed = Message::Failed {
                exit: exit_of(&error).code(),
                message: error.to_string(),
            };
            send(&mut &line, &failed).map_err(broken)
        }
    }
}

fn serve_requests(config: &RunConfig, line: &UnixStream) -> Result<(), EngineError> {
    let Some(Message::Load {
        device,
        threads,
        largest_batch,
        logs,
    }) = next_request(line)?
    else {
        return Err(unexpected("no request to load"));
    };
    let config = RunConfig {
        compute: ComputeOptions {
            device,
            ..config.compute
        },
        threads,
        ..config.clone()
    };
    let stop = Stop::default();
    set_threads(threads);
    let load_model = || Embedder::load(&config, largest_batch, &stop);
    let mut model = if logs {
        load_model()
    } else {
        with_default(NoSubscriber::new(), load_model)
    }?;
    send(&mut &*line, &Message::Ready(Box::new(model.info().clone()))).map_err(broken)?;
    match next_request(line)? {
        Some(request) => compute_batches(&config, &mut model, line, batch(request)?),
        None => Ok(()),
    }
}

/// Computes the first batch and all others: one thread reads, one computes, one sends.
fn compute_batches(
    config: &RunConfig,
    model: &mut Embedder<'_>,
    line: &UnixStream,
    first: Batch,
) -> Result<(), EngineError> {
    let labels = Labels::from_schema(first.packed.record_batch().schema_ref());
    let layout = config.layout(model.info(), (first.stitched, labels))?;
    run_stages(
        // Unbounded: the run sends requests before it reads answers, so a worker must always read.
        unbounded(),
        |queue| {
            let mut next = first;
            while queue.send(Ok(next)).is_ok()
                && let Some(request) = next_request(line)?
            {
                next = batch(request)?;
            }
            Ok(())
        },
        |batches, deliver| {
            let computed = catch_unwind(AssertUnwindSafe(|| model.run(&layout, batches, deliver)));
            // However the computation ends, the reader must not wait for more batches.
            let _ = line.shutdown(Shutdown::Read);
            computed.unwrap_or_else(|panic| resume_unwind(panic))
        },
        |results| {
            // Reused: fresh memory of this size is slow.
            let mut frame = Vec::new();
            for batch in results {
                encode(&mut frame, &Message::Batch(Box::new(batch))).map_err(broken)?;
                (&mut &*line).write_all(&frame).map_err(broken)?;
            }
            Ok(())
        },
    )
}

/// Receives the next request; `None` if the run has hung up.
fn next_request(line: &UnixStream) -> Result<Option<Message>, EngineError> {
    receive(&mut &*line, &Buffers::default()).map_err(broken)
}

/// Makes the batch of a request.
fn batch(request: Message) -> Result<Batch, EngineError> {
    let Message::Batch(mut batch) = request else {
        return Err(unexpected("no batch"));
    };
    let rows = batch.rows.take();
    let packed = rows.ok_or_else(|| "a batch without sequences".to_owned());
    batch.packed = packed
        .and_then(PackedBatch::new)
        .map_err(|what| unexpected(&what))?;
    Ok(*batch)
}

fn unexpected(what: &str) -> EngineError {
    broken(io::Error::new(ErrorKind::InvalidData, what))
}

fn broken(error: io::Error) -> EngineError {
    EngineError::Connection(error)
}
