//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Parser, Subcommand};
use plmkit_cli::{ColumnArgs, Common, Program, file, interval, variant};
use plmkit_contract::{Dtype, StoreDtype};
use plmkit_estimate::{Lengths, Rates};
use plmkit_logs::Tier;
use strum::VariantNames;

/// Records, shows and exports GPUs and runs, reports on runs, and estimates them
#[derive(Debug, Parser)]
#[command(name = "monitor-log", version)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sample GPUs into a log, alone or around a command
    ///
    /// The log has one row for each GPU and moment; on a machine without an NVIDIA driver, none. A value that the driver does not
    /// give is empty, never 0.
    ///
    /// With a command: runs it, forwards signals to it, and exits with its status: 127 if there is no such command, 126 if
    /// it cannot run. A log that fails does not stop the command. Without a command: samples until SIGHUP, SIGINT, SIGQUIT
    /// or SIGTERM.
    Record(RecordArgs),

    /// Show GPUs and running runs
    ///
    /// A line for each GPU, run and process on a GPU. On a terminal, the view is updated every --interval, until q, Esc or Ctrl-C.
    /// Elsewhere, and with --once or --json, it is printed once.
    ///
    /// Red is a problem. A temperature of 40 to 80 °C is normal; `hot` is within 5 °C of the limit of the board, or without a
    /// limit above 80 °C. `full` is above 95 % of the memory. The idle time of a run is judged from 10 s on.
    Top(TopArgs),

    /// Export metrics of GPUs and runs to Prometheus, over HTTP
    ///
    /// GET /metrics returns the latest values in the text format 0.0.4. Runs until SIGHUP, SIGINT, SIGQUIT or SIGTERM. An
    /// unknown value is left out, never 0. The alerts need an --interval of at most 30s: values older than 60s count as stale.
    Export(ExportArgs),

    /// Report on runs from event logs, from GPU samples, or from both joined
    ///
    /// The report has throughput, MFU, residues per joule, waits, the stages of a batch, how full batches are,
    /// utilization of GPUs, and findings with advice. Runs in one event log are kept apart; a run that was interrupted and
    /// resumed is one run. A torn last line of a killed writer is left out, and the report says so.
    Report(ReportArgs),

    /// Estimate a run before it: operations, time, device memory, files and bytes of embeddings
    ///
    /// Tokens and operations are exact: they follow from the lengths of all sequences. Time is operations over one rate: that of
    /// measured runs (--measured), or 40 % of the peaks of common GPUs, which 650M reaches on an H200; small models reach less. Loading the model is left out.
    /// Bytes are those of the values and keys before compression. Memory is what tensors hold at most on a GPU with batches of 65,536
    /// tokens: measured for 650M in f16 and bf16, otherwise by a formula; in int8, it is that of the weights on a CPU.
    Estimate(EstimateArgs),
}

/// The options of `estimate`.
#[derive(Debug, clap::Args)]
pub struct EstimateArgs {
    /// Shards, folders of shards with their manifest.json, or such manifests
    ///
    /// Each folder is a sample. All shards of a manifest are read.
    #[arg(required = true, value_name = "SHARDS", value_parser = file())]
    pub shards: Vec<PathBuf>,

    /// The lengths of the shards of samples that are not cut.
    #[arg(skip)]
    pub uncut: Vec<Vec<Lengths>>,

    /// The rates of devices, if they are known.
    #[arg(skip)]
    pub rates: Option<Rates>,

    /// Model: a folder or weight file as gpu-embed reads it, a folder with config.json alone, or the id of a published model, such
    /// as `facebook/esm2_t33_650M_UR50D` or `biohub/ESMC-300M`
    #[arg(long, value_name = "MODEL", value_parser = file())]
    pub model: PathBuf,

    /// Write the estimate as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// GPUs that compute, each a shard at a time
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Devices")]
    pub gpus: NonZeroU32,

    /// Precision of the computation, which decides the peak of a GPU; f16 is what gpu-embed takes on a GPU
    ///
    /// In fp8, no GPU was measured, and int8 is computed on CPUs: for these, the time is unknown without --measured.
    #[arg(long, value_name = "TYPE", value_parser = dtype(), default_value = "f16", help_heading = "Devices")]
    pub dtype: Dtype,

    /// Take the rate of measured runs of the same model, from their run events
    ///
    /// Such as those of a first shard, in logs/ of a workflow; of a folder, its *.jsonl and those of its subfolders. The rate is in operations a second, so that other lengths are
    /// accounted for. The time is that of the shards which these runs have not finished.
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = file(), help_heading = "Devices")]
    pub measured: Vec<PathBuf>,

    /// The columns.
    #[command(flatten)]
    pub outputs: ColumnArgs,

    /// Stored type of vectors
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Vectors"
    )]
    #[arg(value_parser = variant::<StoreDtype>())]
    pub store_dtype: StoreDtype,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    /// Log to append to; created if missing
    ///
    /// One process at a time writes a log. If another process does, a recording without a command ends with exit code 75; a
    /// command runs without a record.
    ///
    /// The log is CSV, can be followed while it grows, and survives kill -9.
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    #[arg(value_parser = file())]
    pub(crate) out: PathBuf,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// When samples are taken, and where the driver is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SamplingArgs {
    /// Time between samples: 500ms, 1s, 2m; 10ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, help_heading = "Sampling")]
    pub(crate) interval: Duration,

    /// Path of NVML, the driver's management library, if it is not found by itself
    #[arg(long, value_name = "libnvidia-ml.so.1", help_heading = "Sampling")]
    pub(crate) nvml: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Print one moment and exit
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON, an object on one line
    #[arg(long)]
    pub(crate) json: bool,

    /// Run event logs, and folders with subfolders: their *.jsonl of the last day, and later ones
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = ".", help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) events: Vec<PathBuf>,
}

/// Reads a numeric address. A name could resolve to several addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address in numbers and a port: 127.0.0.1:9401, [::1]:9401".to_owned()
    })
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Address and port to serve HTTP on; port 0 takes a free port and prints it on stderr
    ///
    /// There is no password and no encryption: everyone who can reach the address can read all metrics.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9401")]
    #[arg(value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Run event logs, and folders with subfolders: their *.jsonl, and later ones
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = ".", help_heading = "Input")]
    #[arg(value_parser = file())]
    pub(crate) events: Vec<PathBuf>,

    /// Drop a run, ended or not, after this long without news: 30m, 1h; 10ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = interval, help_heading = "Input")]
    pub(crate) drop_after: Duration,
}

/// The options of `report`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("input").required(true).multiple(true).args(["gpu", "events"])))]
#[command(next_help_heading = "Input")]
pub struct ReportArgs {
    /// GPU samples of monitor-log record: logs, or folders with subfolders of *.csv
    ///
    /// With --events, only the time of runs counts. Logs with the same boot id are joined by the seconds since boot. If no sample was
    /// taken during a run, the samples count for no verdict.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    #[arg(value_parser = file())]
    pub gpu: Vec<PathBuf>,

    /// Run event logs of gpu-embed --events, or folders with subfolders of *.jsonl
    ///
    /// The report sums up all runs. An interrupted job that went on in another log is one run.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    #[arg(value_parser = file())]
    pub events: Vec<PathBuf>,

    /// Report to write, as JSON; `-` is standard output. An unknown value is null
    ///
    /// Without --out, --mqc and --html, the report is printed as text.
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub out: Option<PathBuf>,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(
        help = "Write a table for MultiQC; the name of the file is the name of the sample. Runs whose events name one sample are one row"
    )]
    #[expect(missing_docs, reason = "the help says it")]
    pub mqc: Option<PathBuf>,

    /// Write the report as a page with charts: one file without scripts and network
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// Measured peak of each device in TFLOP/s, for MFU: the rate of its largest matrix products in the run's type
    ///
    /// Without it, known GPUs have the peak of their data sheet; other GPUs, and CPUs, have no MFU.
    #[arg(long, value_name = "X", value_parser = tflops, help_heading = "Devices")]
    pub peak_tflops: Option<f64>,

    /// End with exit code 1 if the verdict is this or worse
    ///
    /// The verdict is the worst finding about wasted GPU time or failing hardware: mean utilization of a GPU that a run used
    /// (below 50 % critical, below 80 % mild; at least 10 samples, over half of the time); time in which the device of a run had
    /// no work (above 20 % critical, above 5 % mild; loading the model and runs below 10 s left out); time in which the threads of a
    /// run on a CPU had a core, of the time in which it computed (below 50 % critical, below 80 % mild; likewise); mean fill
    /// of a run's batches (below 80 % critical, below 85 % mild; without the emptiest batch of each file); clocks held down by
    /// heat or the power supply (for more than 10 % of the time critical, else mild); uncorrected memory errors
    /// (critical). If none of them is known, there is no verdict and no failure.
    ///
    /// Other findings are reported and do not count: a hot GPU (within 5 °C of the limit of its board, or without a limit above
    /// 80 °C; 40 to 80 °C is normal), device memory nearly full (above 95 % critical, above 90 % mild), Xid errors, batches
    /// halved because memory ran out, sequences that could not be embedded.
    #[arg(long, value_parser = failing_tier(), value_name = "TIER", help_heading = "Verdict")]
    pub fail_on: Option<Tier>,
}

fn dtype() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(Dtype::VARIANTS.iter().copied()).try_map(|name| name.parse())
}

/// Returns the parser of a verdict that fails.
fn failing_tier() -> impl TypedValueParser<Value = Tier> {
    PossibleValuesParser::new(["critical", "mild"]).map(|tier| match tier.as_str() {
        "mild" => Tier::Mild,
        _ => Tier::Critical,
    })
}

fn tflops(text: &str) -> Result<f64, String> {
    let tera = text.parse().ok();
    let valid = tera.filter(|tera: &f64| (1e-6..=1e9).contains(tera));
    valid.ok_or_else(|| "expected a number above 0, at least 1e-6 and at most 1e9".to_owned())
}

impl Program for Args {
    const NAME: &'static str = "monitor-log";
    /// `record` forwards signals, `top` and `export` wait for them, and `report` has nothing to clean up.
    const HANDLES_STOP: bool = false;

    fn common(&self) -> &Common {
        &self.common
    }
}
