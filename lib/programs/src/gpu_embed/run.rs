//! The run and its messages.

use plmkit_cli::{Exit, Fault, ProgressDisplay, Stop, on_abort, print, silence_refusals};
use plmkit_contract::{BatchSize, path_text, plural};
use plmkit_engine::{EmbedSummary, RunConfig, RunOutcome, RunProgress, embed, probe, serve};
use plmkit_esm2::EsmError;
use plmkit_hub::HubError;

use super::args::{Args, check_outputs};
use super::model::locate;

/// Embeds batches, or measures how many tokens a batch may have.
pub fn run(mut args: Args, stop: &Stop) -> Result<Exit, Fault> {
    check_outputs(&args)?;
    args.model = match locate(&args, stop) {
        Ok(model) => model,
        Err(HubError::Stopped) => {
            tracing::warn!("stopped: what was fetched is kept; run the same command to resume");
            return Ok(Exit::Done);
        }
        Err(error) => return Err(error.into()),
    };
    if args.worker {
        silence_refusals();
        serve(&RunConfig::try_from(args)?)?;
        return Ok(Exit::Done);
    }
    let aborted = EsmError::of_driver(args.device, "it aborts");
    on_abort(&args, stop, &aborted.into())
        .map_err(|error| Fault::of_system(Exit::Internal, "cannot handle signals", &error))?;
    let (mode, quiet) = (args.progress, args.common.quiet);
    let mut progress = None;
    let mut report = |event| match event {
        RunProgress::Started { tokens, saved } => {
            let shown = ProgressDisplay::start(mode, quiet, "tokens", tokens);
            progress = Some(shown.resumed_at(saved));
        }
        RunProgress::Advanced { tokens } => {
            if let Some(shown) = &mut progress {
                shown.advance(tokens);
            }
        }
        RunProgress::Ended => {
            if let Some(shown) = progress.take() {
                shown.finish();
            }
        }
    };
    let wants_probe = args.probe;
    let config = RunConfig::try_from(args)?;
    if wants_probe {
        return print_probe(&probe(&config, stop)?);
    }
    let out = path_text(&config.out);
    let rejected = match embed(&config, stop, &mut report)? {
        RunOutcome::Done(summary) => {
            tracing::info!("{out}: {}", line(&summary));
            summary.rejected
        }
        RunOutcome::AlreadyComplete { rows, rejected } => {
            tracing::info!(
                "{out}: already complete and verified, {}",
                plural(rows, "row")
            );
            rejected
        }
        RunOutcome::Stopped { saved, batches } => {
            tracing::warn!(
                "stopped: {saved} of {} saved; run the same command to resume",
                plural(batches, "batch")
            );
            return Ok(Exit::Done);
        }
    };
    if rejected == 0 {
        return Ok(Exit::Done);
    }
    let rejects = config.rejects();
    tracing::error!(
        "{out}: {} could not be embedded: see {} for the reasons",
        plural(rejected, "sequence"),
        path_text(&rejects)
    );
    Ok(Exit::Negative)
}

/// Prints the number alone on standard output, so that a shell can pass it on.
fn print_probe(size: &BatchSize) -> Result<Exit, Fault> {
    let recommended = size.max_batch_tokens;
    if let Some(largest) = size.largest_tokens {
        tracing::info!(
            "{largest} tokens fit at once ({}, {} without enough memory); batches of {recommended} leave room for other programs",
            plural(size.tries, "computation"),
            size.out_of_memory,
        );
    } else {
        tracing::info!("no GPU to probe; default batch size {recommended} tokens");
    }
    print(format!("{recommended}\n")).map(|_| Exit::Done)
}

/// Describes a completed run in one line.
fn line(summary: &EmbedSummary) -> String {
    let seconds = summary.elapsed.as_secs_f64();
    let columns = summary.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| column.with_shape(summary.widths))
        .collect();
    let saved = match summary.saved_batches {
        0 => String::new(),
        saved => format!(" ({saved} saved by an earlier run)"),
    };
    let in_f32 = match summary.in_f32 {
        0 => String::new(),
        again => format!(", {} again in f32", plural(again, "sequence")),
    };
    let mut rate = vec![format!("{:.0} tokens/s", summary.tokens as f64 / seconds)];
    rate.extend_from_slice(&summary.tiers);
    let truncated = match summary.truncated {
        0 => String::new(),
        count => format!("; truncated: {}", plural(count, "protein")),
    };
    format!(
        "{} of {} from {}{saved}, {}{in_f32} in {seconds:.1} s, {}{truncated}",
        plural(summary.rows, "row"),
        columns.join(", "),
        plural(summary.batches, "batch"),
        plural(summary.tokens, "token"),
        rate.join(", "),
    )
}
