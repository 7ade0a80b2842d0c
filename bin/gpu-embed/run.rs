//! The run, with what people see of it.

use plmkit_cli::{Exit, Fault, Progress, ProgressMode, Stop};
use plmkit_engine::{Config, Observer, Outcome, Summary, embed};

use crate::args::Args;

pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let mut screen = Screen {
        mode: args.progress,
        quiet: args.common.quiet,
        progress: None,
    };
    let config = Config::from(args);
    match embed(&config, stop, &mut screen)? {
        Outcome::Done(summary) => tracing::info!("{}", line(&config, &summary)),
        Outcome::AlreadyComplete(rows) => tracing::info!(
            "{}: already complete and verified, {rows} rows",
            config.out.display()
        ),
        Outcome::Stopped => tracing::warn!("stopped; {} was not written", config.out.display()),
    }
    Ok(Exit::Done)
}

fn line(config: &Config, summary: &Summary) -> String {
    let seconds = summary.elapsed.as_secs_f64();
    let columns: Vec<String> = summary.columns.iter().map(ToString::to_string).collect();
    format!(
        "{}: {} rows of {} x {} ({}) from {} batches, {} tokens in {seconds:.1} s, {:.0} tokens/s",
        config.out.display(),
        summary.sequences,
        summary.columns.len(),
        summary.dim,
        columns.join(", "),
        summary.batches,
        summary.tokens,
        summary.tokens as f64 / seconds,
    )
}

/// Shows progress on standard error.
struct Screen {
    mode: ProgressMode,
    quiet: bool,
    progress: Option<Progress>,
}

impl Observer for Screen {
    fn started(&mut self, tokens: u64) {
        self.progress = Some(Progress::start(self.mode, self.quiet, "tokens", tokens));
    }

    fn advanced(&mut self, tokens: u64) {
        if let Some(progress) = &mut self.progress {
            progress.advance(tokens);
        }
    }

    fn ended(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
    }
}
