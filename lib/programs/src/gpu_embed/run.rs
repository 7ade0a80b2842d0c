//! The run of one output, and its messages.

use plmkit_cli::{Exit, Fault, ProgressDisplay, ProgressMode, Stop, print};
use plmkit_contract::BatchSize;
use plmkit_engine::RunProgress;
use plmkit_esm2::Device;

use super::args::{Args, check_outputs};
use super::child::serve;
use super::session::{Session, log_rejected};

/// Embeds batches, or measures how many tokens a batch may have.
pub fn run(args: &Args, stop: &Stop) -> Result<Exit, Fault> {
    if args.serve.unwrap_or(args.options.computation.device) == Device::All {
        let what = "--device all: expected one device; plmkit computes on all";
        return Err(Fault::usage(what));
    }
    check_outputs(args)?;
    let job = args.job()?;
    let Some(mut session) = Session::open(args, stop)? else {
        return Ok(Exit::Done);
    };
    if args.serve.is_some() {
        return serve(args, session, stop);
    }
    if args.probe {
        return print_probe(&session.probe(args, stop)?);
    }
    let mut show = display(args.options.computation.progress, args.common.quiet);
    let exit = session.embed(args, None, stop, &mut show)?;
    if exit == Exit::Negative {
        log_rejected(&job.out, &job.rejects());
    }
    Ok(exit)
}

/// Shows the progress of one output after the other.
fn display(mode: ProgressMode, quiet: bool) -> impl FnMut(RunProgress) {
    let mut progress = None;
    move |event| match event {
        RunProgress::Started { tokens, saved } => {
            let shown = ProgressDisplay::start(mode, quiet, "tokens", tokens);
            progress = Some(shown.resumed_at(saved));
        }
        RunProgress::Advanced { tokens } => {
            if let Some(shown) = &mut progress {
                shown.advance(tokens);
            }
        }
        RunProgress::Ended => progress = None,
    }
}

/// Prints the number alone on standard output, so that a shell can pass it on.
fn print_probe(size: &BatchSize) -> Result<Exit, Fault> {
    print(format!("{}\n", size.max_batch_tokens)).map(|_| Exit::Done)
}
