//! The options of all programs.

use clap::{Args, ValueEnum};

use crate::Generate;

/// The options of all programs. Flatten it into the arguments of each program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "General")]
pub struct Common {
    /// Format of the messages on standard error: lines of text, or one JSON object per line
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text, global = true)]
    pub log_format: LogFormat,

    /// Print only warnings and errors
    #[arg(long, global = true)]
    pub quiet: bool,

    /// Print what usually needs no attention, too, unless --quiet is given
    #[arg(long, global = true)]
    pub verbose: bool,

    /// Write a man page or a shell completion script to standard output, and exit
    #[arg(long, value_enum, value_name = "WHAT", exclusive = true)]
    pub generate: Option<Generate>,
}

/// The format of messages on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `tool: message`
    Text,
    /// One JSON object a line, with `level`, `tool` and `message`
    Json,
}
