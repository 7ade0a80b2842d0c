//! The command line.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use plmkit_cli::{
    Common, Exit, Fault, NamedPath, Program, ProgressMode, file, files_of, interval, keep_apart,
    keep_renameable, one_of,
};
use plmkit_contract::{ModelName, StoreDtype};
use plmkit_engine::{Injection, RunConfig, Windows, rejects_beside};
use plmkit_esm2::{Device, Kernels};
use plmkit_hub::model_name;

use crate::outputs::OutputArgs;
#[cfg(feature = "testing")]
use crate::testing::TestingArgs;

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
        value_parser = one_of([Windows::Stitch, Windows::Separate]),
        value_name = "WAY",
        default_value = "stitch",
        help_heading = "Vectors"
    )]
    windows: Windows,

    /// Type in which vectors are stored; f16 halves the file and keeps three significant digits
    #[arg(
        long,
        value_parser = one_of([StoreDtype::F32, StoreDtype::F16]),
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Vectors"
    )]
    store_dtype: StoreDtype,

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
        value_parser = ["auto", "f32", "f16", "bf16", "int8"],
        value_name = "TYPE",
        default_value = "auto",
        help_heading = "Computation"
    )]
    dtype: String,

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

    /// Batches that are read ahead of the computation
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

    #[cfg(feature = "testing")]
    #[command(flatten)]
    testing: TestingArgs,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl Program for Args {
    const NAME: &'static str = "gpu-embed";

    fn common(&self) -> &Common {
        &self.common
    }
}

impl TryFrom<Args> for RunConfig {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        keep_files_apart(&args)?;
        if args.workers.is_some() && args.device == Device::All {
            let what = "--workers: with --device all there is one for each GPU";
            return Err(Fault::new(Exit::Usage, what.to_owned()));
        }
        #[cfg_attr(not(feature = "testing"), expect(unused_mut))]
        let mut config = Self {
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
            windows: args.windows,
            // Any type but `auto`.
            dtype: args.dtype.parse().ok(),
            store_dtype: args.store_dtype,
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
            kernels: Kernels::default(),
            profile: false,
            injection: Injection::default(),
        };
        #[cfg(feature = "testing")]
        args.testing.apply(&mut config);
        Ok(config)
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

/// The CPUs that this process may use, by its affinity and its control group, and of these no more than SLURM gave to the
/// task: without a control group around it, a task sees all CPUs of its node.
fn default_threads() -> NonZeroUsize {
    let available = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let of_task = env::var("SLURM_CPUS_PER_TASK").ok();
    of_task
        .and_then(|cpus| cpus.parse().ok())
        .map_or(available, |cpus: NonZeroUsize| cpus.min(available))
}
