//! The command line.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use plmkit_cli::{
    Common, Exit, Fault, NamedPath, Program, ProgressMode, file, files_of, interval, keep_apart,
    keep_renameable,
};
use plmkit_contract::{ModelName, StoreDtype};
use plmkit_engine::{Config, Injection, Windows, rejects_beside};
use plmkit_esm2::{Device, Dtype, Isa, Kernels};
use plmkit_hub::model_name;

use crate::outputs::OutputArgs;
use crate::threads::default_threads;

/// Embed packed batches with ESM-2, without padding.
///
/// Reads batches files of pack-batches, runs the model over each pack as one variable-length batch, and writes one
/// Parquet file with a row for each protein: its key and one vector for each pooling and layer. The same protein gets the
/// same vector whatever it was packed with. Proteins in windows are put together; see --windows.
#[derive(Parser, Debug)]
#[command(
    name = "gpu-embed",
    version,
    override_usage = "gpu-embed [OPTIONS] --model <MODEL> --out <FILE.parquet> <BATCHES.arrow>...\n       \
                      gpu-embed [OPTIONS] --model <MODEL> --probe [--out <FILE.json>]"
)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct Args {
    /// Batches files, as pack-batches writes them, or folders of such .arrow files; none with --probe
    #[arg(required_unless_present = "probe", value_name = "BATCHES.arrow")]
    #[arg(value_parser = file())]
    batches: Vec<PathBuf>,

    /// Model: a folder, a weight file, or an id of the Hugging Face Hub
    ///
    /// A folder holds config.json and the weights, as in a snapshot of the Hub; beside a weight file lies its
    /// config.json. An id, ORGANISATION/NAME or ORGANISATION/NAME@REVISION, is looked up in the Hub's local cache, where
    /// `HF_HUB_CACHE` or `HF_HOME` say that it is.
    #[arg(long, value_name = "MODEL")]
    #[arg(value_parser = file())]
    pub(crate) model: PathBuf,

    /// What the results call the model [default: its id on the Hub, or the name of its folder]
    ///
    /// It is for people: models are told apart by their digest, and another name is no other work.
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,

    /// Fetch a model of the Hub that its local cache does not have
    ///
    /// From `HF_ENDPOINT` where it is set, with the token in `HF_TOKEN` where there is one, and never with
    /// `HF_HUB_OFFLINE`.
    /// Nothing else makes this program use the network.
    #[arg(long)]
    pub(crate) download: bool,

    /// Embeddings file to write, in Parquet; with --probe the batch size, in JSON
    ///
    /// It appears when it is complete. One that is there already is verified and kept if it is the result of the same
    /// work, and refused otherwise; see --force.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    #[arg(required_unless_present = "probe")]
    #[arg(value_parser = file())]
    out: Option<PathBuf>,

    /// List of the sequences that could not be embedded, with the reasons [default: beside the output, as
    /// NAME.rejects.csv, if there are any]
    ///
    /// A sequence that does not fit into memory even alone, or whose vectors are not finite, costs no other its
    /// embedding; the run then ends with exit code 1.
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    #[arg(value_parser = file())]
    rejects: Option<PathBuf>,

    /// Replace an output that holds other work
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Longest time that finished batches may be unsaved: 10s, 5m
    ///
    /// They are saved in .NAME.plmkit-run, beside the output unless --checkpoint-dir is given, until it is complete. The same command
    /// after an interruption goes on from there and gives the output that an uninterrupted run would have given.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = interval, help_heading = "Output")]
    checkpoint_interval: Duration,

    /// Folder to save finished batches in; made if there is none [default: that of the output]
    ///
    /// For a workflow engine that tries again in another folder: with the same --checkpoint-dir and the same name of the output, the
    /// second try goes on where the first one was interrupted. What another work has saved there is never taken.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    #[arg(value_parser = file())]
    checkpoint_dir: Option<PathBuf>,

    /// Wait while another process is writing this output, which otherwise ends the run with exit code 75
    ///
    /// For whatever starts a task again without knowing whether the one before has ended, as an engine that was killed does.
    #[arg(long, help_heading = "Output")]
    wait: bool,

    #[command(flatten)]
    outputs: OutputArgs,

    /// What becomes of the windows that fasta-shard --long-policy window cut long proteins into
    ///
    /// `stitch` gives a protein one row, at the place of its last window, and each row the number of its windows,
    /// `n_windows`. The vector of a residue is the mean over the windows that hold it, weighted by the number of residues from it to
    /// the nearer end of the window, itself included; poolings are over all residues of the protein, and bos is the mean over windows,
    /// weighted by their residues. `separate` gives each window its own row.
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "stitch",
        help_heading = "Vectors"
    )]
    windows: WindowsArg,

    /// Type in which vectors are stored; f16 halves the file and keeps three significant digits
    #[arg(
        long,
        value_enum,
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Vectors"
    )]
    store_dtype: StoreArg,

    /// Device to compute on: auto, cpu, cuda, cuda:N or all
    ///
    /// auto is the first GPU of compute capability 7.5 or newer, and the CPU where the driver is missing or shows no such GPU; a line
    /// says which is the case. A driver that does not work, and a GPU whose CUDA libraries are missing, are errors (exit code 69):
    /// choose cpu to compute on the CPU all the same. cuda is cuda:0; all starts one worker process for each visible GPU.
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "auto",
        help_heading = "Computation"
    )]
    pub(crate) device: Device,

    /// Precision of the computation; auto takes the most exact that is fast on the device, which is f32 on a CPU
    ///
    /// In f16 and bf16 the linear maps of the layers and attention compute in that type, and all that is summed up or
    /// normalised stays in f32. A sequence whose values overflow is computed again in f32. CPUs with AVX512-BF16 compute
    /// bf16, twice as fast as f32; for other CPUs, and for f16, weights are widened and the run is in f32.
    ///
    /// In int8 the linear maps multiply 8-bit integers, on CPUs: three times as fast as f32 with AVX512-VNNI. How near that
    /// comes to f32 is measured first, for the last layer on a sample of the run's sequences (a hundredth of its tokens, from
    /// 256 to 4,096): below a cosine of 0.999 of a mean vector or 0.98 of a residue vector the run is refused.
    #[arg(
        long,
        value_enum,
        value_name = "TYPE",
        default_value = "auto",
        help_heading = "Computation"
    )]
    dtype: DtypeArg,

    /// CPU threads [default: the CPUs that this process may use, at most `SLURM_CPUS_PER_TASK`]
    #[arg(long, value_name = "N", help_heading = "Computation")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Compute in N processes, each with the model in memory and its share of the threads
    ///
    /// The output is the one of a run in one process. A worker that dies is replaced and its batch computed again; a batch
    /// with which three workers died is given up, and its sequences are listed as rejected.
    #[arg(long, value_name = "N", help_heading = "Computation")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Measure how many tokens fit into the memory of the GPU at once, for this model, precision and these outputs, and print
    /// four fifths of that: the batch size for pack-batches --max-batch-tokens
    ///
    /// Computes larger and larger batches until memory runs out, 131,072 tokens at most, and nothing else. With --out FILE.json
    /// the size is also kept for pack-batches --batch-size, and is not measured again as long as model, outputs, precision, GPU
    /// and version are the same; a file that was measured otherwise is refused, or replaced with --force. Workers of one GPU
    /// share its memory. On a CPU nothing is measured, and the size is the default of pack-batches.
    #[arg(long, conflicts_with = "batches", help_heading = "Computation")]
    pub(crate) probe: bool,

    /// Be a worker of the run at the other end of standard input
    #[arg(long, hide = true)]
    pub(crate) worker: bool,

    /// Packs that are read ahead of the computation
    #[arg(
        long,
        value_name = "N",
        default_value = "4",
        help_heading = "Computation"
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    prefetch: u16,

    /// Run events: one JSON object a line, appended while the run goes on; monitor-log reports on it
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Monitoring")]
    #[arg(value_parser = file())]
    events: Option<PathBuf>,

    /// How progress is shown on standard error
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value = "auto",
        help_heading = "Monitoring"
    )]
    pub(crate) progress: ProgressMode,

    /// What computes the layers on a CPU, for comparisons: `auto`, `portable`, `avx2`, `avx512`, `avx512_vnni`,
    /// `avx512_bf16`, `libtorch`
    #[arg(long, value_name = "KERNELS", default_value = "auto", hide = true)]
    #[arg(value_parser = |text: &str| kernels(text, Isa::is_available))]
    kernels: Kernels,

    /// Say in the run events what a GPU's time goes into
    #[arg(long, hide = true, requires = "events")]
    profile: bool,

    /// Produce failures on purpose, for tests: `out-of-memory-above=TOKENS`, `not-finite=ORDINAL`, `abort=ORDINAL`, `panic=ORDINAL`
    #[arg(long, value_name = "FAILURE", value_delimiter = ',', hide = true)]
    inject: Vec<Failure>,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl Program for Args {
    const NAME: &'static str = "gpu-embed";

    fn common(&self) -> &Common {
        &self.common
    }
}

impl TryFrom<Args> for Config {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        keep_files_apart(&args)?;
        if args.workers.is_some() && args.device == Device::All {
            let what = "--workers: with --device all there is one for each GPU";
            return Err(Fault::new(Exit::Usage, what.to_owned()));
        }
        Ok(Self {
            batches: files_of(args.batches, &["arrow"])?,
            model_name: match args.model_name {
                Some(name) => ModelName {
                    name,
                    ..model_name(&args.model)
                },
                None => model_name(&args.model),
            },
            model: args.model,
            out: args.out.unwrap_or_default(),
            device: args.device,
            outputs: args.outputs.into(),
            windows: match args.windows {
                WindowsArg::Stitch => Windows::Stitch,
                WindowsArg::Separate => Windows::Separate,
            },
            dtype: match args.dtype {
                DtypeArg::Auto => None,
                DtypeArg::F32 => Some(Dtype::F32),
                DtypeArg::F16 => Some(Dtype::F16),
                DtypeArg::Bf16 => Some(Dtype::Bf16),
                DtypeArg::Int8 => Some(Dtype::Int8),
            },
            store_dtype: match args.store_dtype {
                StoreArg::F32 => StoreDtype::F32,
                StoreArg::F16 => StoreDtype::F16,
            },
            rejects: args.rejects,
            checkpoint_interval: args.checkpoint_interval,
            checkpoint_dir: args.checkpoint_dir,
            wait: args.wait,
            events: args.events,
            threads: args
                .threads
                .and_then(|threads| NonZeroUsize::new(threads.into()))
                .unwrap_or_else(default_threads),
            workers: args
                .workers
                .and_then(|count| NonZeroUsize::new(count.into())),
            worker_arguments: worker_arguments(),
            prefetch: args.prefetch.into(),
            force: args.force,
            kernels: args.kernels,
            profile: args.profile,
            injection: injection(args.inject),
        })
    }
}

/// This command line, as a worker's.
fn worker_arguments() -> Vec<OsString> {
    let own = env::args_os().skip(1);
    [OsString::from("--worker")]
        .into_iter()
        .chain(own)
        .collect()
}

/// What is to be renamed into its place, which shows before a model is fetched.
pub(crate) fn check_outputs(args: &Args) -> Result<(), Fault> {
    let [out, rejects] = [("--out", &args.out), ("--rejects", &args.rejects)];
    let given = [out, rejects].into_iter();
    let given = given.filter_map(|(name, path)| Some((name, path.as_deref()?)));
    keep_renameable(&given.collect::<Vec<NamedPath>>())
}

/// Outputs must not destroy the batches, the model or one another.
fn keep_files_apart(args: &Args) -> Result<(), Fault> {
    let weights = model_files(&args.model);
    let batches = args
        .batches
        .iter()
        .map(|path| ("a batches file", path.as_path()));
    let weights = weights
        .iter()
        .map(|path| ("a file of the model", path.as_path()));
    let inputs: Vec<NamedPath> = batches.chain(weights).collect();
    let rejects = args.rejects.clone();
    let out = args.out.clone().unwrap_or_default();
    let rejects = rejects.unwrap_or_else(|| rejects_beside(&out));
    let written = args.out.iter().map(|path| ("--out", path.as_path()));
    let rejects = (!args.probe).then_some(("--rejects", rejects.as_path()));
    let events = args.events.iter().map(|path| ("--events", path.as_path()));
    let outputs: Vec<NamedPath> = written.chain(rejects).chain(events).collect();
    keep_apart(&inputs, &outputs)
}

/// The files of a model: those in its folder, or a weight file and the config.json beside it.
fn model_files(model: &Path) -> Vec<PathBuf> {
    match fs::read_dir(model) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .collect(),
        Err(_) => vec![model.to_owned(), model.with_file_name("config.json")],
    }
}

/// Kernels of an instruction set that this CPU has, as `has` says.
fn kernels(text: &str, has: impl Fn(Isa) -> bool) -> Result<Kernels, String> {
    match text.parse::<Kernels>() {
        Ok(Kernels::Own(isa)) if !has(isa) => Err(format!("this CPU has no {isa}")),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WindowsArg {
    Stitch,
    Separate,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreArg {
    F32,
    F16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DtypeArg {
    Auto,
    F32,
    F16,
    Bf16,
    Int8,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    OutOfMemoryAbove(usize),
    NotFinite(u64),
    Abort(u64),
    Panic(u64),
}

impl FromStr for Failure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once('=') {
            Some(("out-of-memory-above", tokens)) => {
                tokens.parse().ok().map(Self::OutOfMemoryAbove)
            }
            Some(("not-finite", ordinal)) => ordinal.parse().ok().map(Self::NotFinite),
            Some(("abort", ordinal)) => ordinal.parse().ok().map(Self::Abort),
            Some(("panic", ordinal)) => ordinal.parse().ok().map(Self::Panic),
            _ => None,
        };
        parsed.ok_or_else(|| {
            "expected out-of-memory-above=TOKENS, not-finite=ORDINAL, abort=ORDINAL or panic=ORDINAL".to_owned()
        })
    }
}

fn injection(failures: Vec<Failure>) -> Injection {
    let mut injection = Injection::default();
    for failure in failures {
        match failure {
            Failure::OutOfMemoryAbove(tokens) => injection.out_of_memory_above = Some(tokens),
            Failure::NotFinite(ordinal) => injection.not_finite.push(ordinal),
            Failure::Abort(ordinal) => injection.abort.push(ordinal),
            Failure::Panic(ordinal) => injection.panic.push(ordinal),
        }
    }
    injection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_the_cpu_cannot_run_are_refused() {
        let has = |isa| isa <= Isa::Avx2;
        assert_eq!(kernels("avx2", has), Ok(Kernels::Own(Isa::Avx2)));
        assert_eq!(kernels("libtorch", has), Ok(Kernels::Libtorch));
        let refused = Err("this CPU has no avx512".to_owned());
        assert_eq!(kernels("avx512", has), refused);
        assert!(kernels("avx1024", has).is_err());
    }
}
