//! The command line: a run, or a command beside it.

use clap::{Arg, Command, Parser, Subcommand};
use plmkit_cli::{Common, Program};

use crate::args::Args;
use crate::page::ReportArgs;
use crate::search::SearchArgs;
use crate::variants::VariantsArgs;

// What plmkit is asked to do. A command line without a subcommand is a run, which the help describes.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    mut_subcommands(without_generate)
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) other: Option<Other>,

    #[command(flatten)]
    pub(crate) run: Option<Args>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Other {
    /// Estimate a run before it: seconds on this machine, and bytes of embeddings
    ///
    /// Takes the command line of the run, with or without --out, reads the FASTA as the run would cut it, and writes no results. Equal
    /// and known sequences count (--dedup, --known), and all positions (--scores-positions). The time is that of embedding, without
    /// loading the model and validation. The rate of the CPU is measured for half a second in each type that it computes, on a layer of
    /// the model's width with random weights and sequences of the average length; that of a GPU is 40 % of its peak. A published model
    /// need not be fetched. Bytes are those before compression.
    #[command(mut_args(without_runs), mut_arg("report", |report| report.help("Write the estimate as JSON; - is standard output")))]
    Estimate {
        #[command(flatten)]
        args: Box<Args>,
    },
    /// Fetch a model of the Hugging Face Hub into its local cache, and print the folder
    ///
    /// Verifies all files, and uses no network if they are there. See --download of gpu-embed.
    Fetch {
        /// Id of the Hugging Face Hub: ORGANISATION/NAME or ORGANISATION/NAME@REVISION
        #[arg(value_name = "MODEL")]
        model: String,

        #[command(flatten)]
        common: Common,
    },
    Search(Box<SearchArgs>),
    Variants(Box<VariantsArgs>),
    Report(ReportArgs),
}

/// Hides an option of the whole command line.
fn without_generate(command: Command) -> Command {
    command.mut_arg("generate", |generate| generate.hide(true))
}

/// Options of a run that no other command needs.
const OF_RUNS: &str = "allow_empty checkpoint_dir checkpoint_interval download force html max_batch_tokens max_rejected \
                       min_cosine model_name prefetch progress reference sample seed skip stage task verify";

/// Hides an option that a run needs and no other command.
fn without_runs(option: Arg) -> Arg {
    let mut of_runs = OF_RUNS.split_whitespace();
    let is_of_runs = of_runs.any(|name| name == option.get_id().as_str());
    if option.get_id() == "out" {
        option.hide(true).required(false).default_value(".")
    } else if is_of_runs {
        option.hide(true)
    } else {
        option
    }
}

impl Program for CommandLine {
    const NAME: &'static str = "plmkit";
    const QUIET: &'static [&'static str] = &[
        "plmkit_programs::pack_batches",
        "plmkit_programs::monitor_log",
        "plmkit_programs::validate_embeddings",
        "plmkit_telemetry",
    ];

    fn common(&self) -> &Common {
        match (&self.other, &self.run) {
            (Some(Other::Estimate { args }), _) => &args.common,
            (Some(Other::Fetch { common, .. }), _) => common,
            (Some(Other::Search(search)), _) => &search.common,
            (Some(Other::Variants(variants)), _) => &variants.common,
            (Some(Other::Report(report)), _) => &report.common,
            (None, Some(args)) => &args.common,
            (None, None) => unreachable!("a run has inputs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_is_hidden_is_an_option() {
        let command = CommandLine::command();
        let known: Vec<&str> = command
            .get_arguments()
            .map(|arg| arg.get_id().as_str())
            .collect();
        let unknown = OF_RUNS
            .split_whitespace()
            .filter(|name| !known.contains(name));
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0]);
    }
}
