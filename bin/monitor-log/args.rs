//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use plmkit_cli::{Common, Program, file, interval};
use plmkit_telemetry::report::Tier;

/// Records, shows and exports GPUs, host and runs, and reports on runs
#[derive(Debug, Parser)]
#[command(name = "monitor-log", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sample GPUs and host into a log, by itself or around a command
    ///
    /// One row for each GPU and moment; on a machine without an NVIDIA driver one row for the host. A value that
    /// the driver does not give is empty, never 0.
    ///
    /// With a command: runs it, forwards signals to it, and ends as it ends: with its exit code, or of its signal;
    /// 127 if there is no such command and 126 if it cannot be run. Whatever happens to the log, the command goes on.
    /// Without one: samples until SIGHUP, SIGINT, SIGQUIT or SIGTERM.
    Record(RecordArgs),

    /// Show GPUs, host and the runs at work
    ///
    /// On a terminal a view that changes every --interval, until q, Esc or Ctrl-C. Elsewhere, and with --once, a line
    /// for each GPU, or for the host where there is no GPU, and a line for each run.
    Top(TopArgs),

    /// Tell Prometheus of GPUs, host and runs, over HTTP or in a file
    ///
    /// GET /metrics answers with what was seen last, in the text form 0.0.4. Runs until SIGHUP, SIGINT, SIGQUIT or SIGTERM. A value
    /// that is not known is not exported, never 0.
    Export(ExportArgs),

    /// Report on runs from their event log, from GPU samples, or from both joined
    ///
    /// Throughput, MFU, residues for each joule, waits, where the time went, how full the batches were, how busy the GPUs
    /// were; and findings, each with a sentence of advice. Several runs in one event log are told apart; a run that was interrupted
    /// and went on is one run. A last line that is torn, as a killed writer leaves it, is left out and said.
    Report(ReportArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    /// Log to append to, a line at a time; made if there is none
    ///
    /// One process at a time writes it. Where another one does, a recording without a command ends with exit code 75; a command
    /// is run at once, and recorded as soon as the other recording has ended.
    ///
    /// It is a log and not an atomic file: it can be followed, and after kill -9 it holds what was seen. With a name that ends in
    /// .parquet the log is at FILE.parquet.csv, and becomes the Parquet file at the end; what a killed recording left there is
    /// gone on with.
    #[arg(long, value_name = "FILE.csv|FILE.parquet", help_heading = "Output")]
    #[arg(value_parser = file())]
    pub(crate) out: PathBuf,

    /// Time between samples: 500ms, 1s, 2m; 10ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Sampling")]
    pub(crate) interval: Duration,

    /// Warn when this share of a GPU's memory is in use
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = percent, help_heading = "Sampling")]
    pub(crate) memory_warning: f64,

    #[command(flatten)]
    pub(crate) driver: DriverArgs,

    /// Command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Where the driver is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriverArgs {
    /// NVML, the driver's management library, where it is not found by itself
    #[arg(long, value_name = "libnvidia-ml.so.1", help_heading = "Sampling")]
    pub(crate) nvml: Option<PathBuf>,
}

/// Reads a share: more than 0, at most 100.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "expected a percentage, more than 0 and at most 100".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) driver: DriverArgs,

    /// Show one moment and end
    #[arg(long, help_heading = "Output")]
    pub(crate) once: bool,

    /// Run event logs, and folders whose *.jsonl of the last day are looked at, also those that come later
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = ".", help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) events: Vec<PathBuf>,

    /// Time between two moments: 500ms, 1s, 2m; 10ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Sampling")]
    pub(crate) interval: Duration,
}

/// Reads a numeric address: a name may stand for several, of which one would be taken.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address in numbers and a port: 127.0.0.1:9401, [::1]:9401".to_owned()
    })
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) driver: DriverArgs,

    /// Address and port to serve HTTP on; 0 is any free port, and stderr says which
    ///
    /// There is no password and no encryption: an address that others reach shows them everything that is exported.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:9401",
        value_parser = address,
        help_heading = "Output"
    )]
    pub(crate) listen: SocketAddr,

    /// Write a file for `node_exporter`'s textfile collector instead, again and again, and remove it at the end
    #[arg(
        long,
        value_name = "FILE.prom",
        conflicts_with = "listen",
        help_heading = "Output"
    )]
    #[arg(value_parser = file())]
    pub(crate) textfile: Option<PathBuf>,

    /// Write the file once, leave it there and end
    #[arg(long, requires = "textfile", help_heading = "Output")]
    pub(crate) once: bool,

    /// Run event logs, and folders whose *.jsonl are looked at, also those that come later
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = ".", help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) events: Vec<PathBuf>,

    /// Leave runs out of which nothing was heard for this long, ended or not: 30m, 1h; 10ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = interval, help_heading = "Input")]
    pub(crate) keep: Duration,

    /// Time between two looks: 500ms, 1s, 2m; 10ms to 24h. The alert `PlmkitExporterStale` takes more than 60s for a hang
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Sampling")]
    pub(crate) interval: Duration,
}

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("input").required(true).multiple(true).args(["gpu", "events"])))]
pub(crate) struct ReportArgs {
    /// GPU samples, written by monitor-log record: logs, Parquet files made of them, or folders of *.csv and *.parquet
    ///
    /// With --events, the samples of the time of a run count. Logs of one boot of a machine are joined by the seconds since boot that
    /// both write, others by the time of day. If no sample was taken during a run, the samples count for no verdict.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) gpu: Vec<PathBuf>,

    /// Run event logs, written by gpu-embed --events, or folders of *.jsonl
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) events: Vec<PathBuf>,

    /// Report to write, as JSON; `-` is standard output. What could not be computed is null
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub(crate) out: PathBuf,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(help = "Write a table for MultiQC, with the sample's name from the file's name")]
    pub(crate) mqc: Option<PathBuf>,

    /// Write the report as a page for people, with pictures: one file that needs no network and no scripts
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,

    /// Measured peak of each device in TFLOP/s, for MFU: the rate of its largest matrix products in the run's type
    ///
    /// Without it, the peak of the data sheet counts, for GPUs that are known by name; others, and CPUs, have no MFU.
    #[arg(long, value_name = "X", value_parser = tflops, help_heading = "Devices")]
    pub(crate) peak_tflops: Option<f64>,

    /// End with exit code 1 if the verdict is this or worse
    ///
    /// The verdict is the worst of the findings that tell of wasted GPU time or of failing hardware: mean utilization of a
    /// GPU that a run worked on (below 50 % critical, below 80 % mild; at least 10 samples); mean utilization of a run's
    /// batches (below 80 % critical, below 85 % mild; the last batch of each file left out); clocks held down by heat or
    /// the supply of power (in more than 10 % of the samples critical, else mild); memory errors that could not be
    /// corrected, and a GPU whose values end (critical). Where none of them is known there is no verdict, and no failure.
    ///
    /// Other findings are told and do not count: temperature, device memory nearly full, power limits, processes of others,
    /// a starved queue, batches halved for lack of memory, sequences that could not be embedded.
    #[arg(long, value_enum, value_name = "TIER", help_heading = "Verdict")]
    pub(crate) fail_on: Option<FailOn>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FailOn {
    /// Much is lost
    Critical,
    /// Something is lost
    Mild,
}

impl From<FailOn> for Tier {
    fn from(fail_on: FailOn) -> Self {
        match fail_on {
            FailOn::Critical => Self::Critical,
            FailOn::Mild => Self::Mild,
        }
    }
}

fn tflops(text: &str) -> Result<f64, String> {
    let tera = text
        .parse()
        .ok()
        .filter(|tera: &f64| tera.is_finite() && *tera > 0.0);
    tera.ok_or_else(|| "expected a number above 0".to_owned())
}

impl Program for Args {
    const NAME: &'static str = "monitor-log";
    /// `record` forwards signals, `top` and `export` wait for them; the rest has nothing to clean up.
    const HANDLES_STOP: bool = false;

    fn common(&self) -> &Common {
        &self.common
    }
}
