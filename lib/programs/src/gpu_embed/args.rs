//! The command line.

use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use plmkit_cli::{
    ColumnArgs, Common, Exit, Fault, Given, NamedPath, Program, ProgressMode, available_threads,
    default_threads, ensure_distinct, ensure_no_stream, ensure_same_kind, file, files_of, interval,
    lists_of, variant,
};
use plmkit_contract::{ModelName, Outputs, REJECTED_ROWS_HEADER, Scores, StoreDtype};
use plmkit_engine::{Injection, Job, RunConfig, Windows, rejects_beside};
use plmkit_esm2::{ComputeOptions, Device, Dtype, Isa, Kernels};
use plmkit_hub::model_name;
use plmkit_kit::{Quoted, path_text, plural};
use plmkit_store::{FileKind, Replaceable};
use strum::VariantNames;

#[cfg(feature = "testing")]
use super::testing::{Profile, TestingArgs};

/// Embed packed batches with ESM-2, without padding.
///
/// Reads batches files of pack-batches, runs the model over each record batch as one variable-length batch, and writes one
/// Parquet file with a row for each protein: its key and one vector for each pooling and layer. The vector of a protein does not
/// depend on the proteins it is batched with. The windows of a protein are stitched; see --windows.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "gpu-embed",
    version,
    override_usage = "gpu-embed [OPTIONS] --model <MODEL> --out <FILE.parquet> <BATCHES.arrow>...\n       \
                      gpu-embed [OPTIONS] --model <MODEL> --probe [--out <FILE.json>]"
)]
pub struct Args {
    /// Batches files of pack-batches, or folders of such .arrow files; none with --probe
    #[arg(required_unless_present_any = ["probe", "serve"], value_name = "BATCHES.arrow")]
    #[arg(value_parser = file())]
    pub batches: Vec<PathBuf>,

    /// Model: a folder, a weight file, or an id of the Hugging Face Hub
    ///
    /// A folder holds config.json and the weights, like a snapshot of the Hub; a weight file needs its config.json beside it. An
    /// id, ORGANISATION/NAME or ORGANISATION/NAME@REVISION, is looked up in the Hub's local cache, which `HF_HUB_CACHE` or
    /// `HF_HOME` set.
    #[arg(long, value_name = "MODEL")]
    #[arg(value_parser = file())]
    pub model: PathBuf,

    /// Fetch a model of the Hub that is not in its local cache
    ///
    /// Uses the server in `HF_ENDPOINT` and the token in `HF_TOKEN`, if they are set, and fetches nothing with `HF_HUB_OFFLINE`.
    /// No other option makes this program use the network.
    #[arg(long)]
    pub download: bool,

    /// Embeddings file to write, in Parquet; with --probe the batch size, in JSON
    ///
    /// Written atomically. An existing output of the same inputs and options is verified and kept; any other is refused (see
    /// --force).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    #[arg(required_unless_present_any = ["probe", "serve"])]
    #[arg(value_parser = file())]
    pub out: Option<PathBuf>,

    /// List of the sequences that could not be embedded, with the reasons [default: beside the output, as
    /// NAME.rejects.csv]
    ///
    /// A sequence that does not fit in memory even alone, or whose vectors are not finite, is skipped and listed here. The run then
    /// ends with exit code 1. An empty list is not written.
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    #[arg(value_parser = file())]
    pub rejects: Option<PathBuf>,

    /// Overwrite an output of other inputs or options
    #[arg(long, help_heading = "Output")]
    pub force: bool,

    /// Measure how many tokens fit in GPU memory at once, for this model, precision and these outputs, and print four fifths of that:
    /// the batch size for pack-batches --max-batch-tokens
    ///
    /// Computes larger and larger batches until memory runs out, up to 131,072 tokens, and writes no embeddings. With --out FILE.json,
    /// the size is also written for pack-batches --batch-size. An existing file is kept if model, outputs, precision, GPU and version
    /// are the same, and refused otherwise; --force overwrites it. On a CPU, nothing is measured, and the size is the default of pack-batches.
    #[arg(long, conflicts_with = "batches", help_heading = "Computation")]
    pub probe: bool,

    /// Compute on this device what the process at the other end of standard input asks for
    #[arg(long, value_name = "DEVICE", hide = true)]
    pub(crate) serve: Option<Device>,

    /// The digest of the model that the process at the other end has described
    #[arg(long, value_name = "DIGEST", hide = true, requires = "serve")]
    pub(crate) serve_model: Option<String>,

    /// The file of digests of models that were read before.
    #[arg(skip)]
    pub digests: Option<PathBuf>,

    /// Run events: one JSON object per line, appended during the run; for monitor-log
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Monitoring")]
    #[arg(value_parser = file())]
    pub events: Option<PathBuf>,

    #[command(flatten)]
    pub options: Given<Options>,

    #[cfg(feature = "testing")]
    #[command(flatten)]
    profile: Profile,

    /// The options of all programs.
    #[command(flatten)]
    pub common: Common,
}

/// The options that decide what is computed of batches, and how.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Name of the model in results [default: its id on the Hub, or the name of its folder]
    ///
    /// The name is for people. The digest identifies the model, and an output with another name is the same work.
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub model_name: Option<String>,

    /// The columns.
    #[command(flatten)]
    pub outputs: ColumnArgs,

    /// Positions to mask, with `--scores masked`: CSV or TSV with the columns `id` and `position`, from 1 [default: all]
    ///
    /// Other residues have NaN in `log_probs`, and `log_likelihood` is null unless all residues of the twenty are masked. A
    /// position that a protein does not have is refused (65). Ids of other shards are left to these, with a warning; plmkit, which knows
    /// all shards, refuses an id that none has.
    #[arg(long, value_name = "FILE", value_parser = file(), requires = "scores", help_heading = "Vectors")]
    pub scores_positions: Option<PathBuf>,

    /// How to combine the windows into which fasta-shard --long-policy window cut long proteins
    ///
    /// `stitch` gives a protein one row, and adds the column `n_windows`, the number of windows. The vector of a residue is the mean
    /// over the windows that hold it, weighted by the number of residues from it to the nearer end of the window, itself included.
    /// Poolings are over all residues of the protein, and bos is the mean over windows, weighted by their residues. `separate` gives
    /// each window its own row.
    #[arg(
        long,
        value_parser = variant::<Windows>(),
        value_name = "WAY",
        default_value = "stitch",
        help_heading = "Vectors"
    )]
    pub windows: Windows,

    /// Stored type of vectors
    #[arg(
        long,
        value_parser = variant::<StoreDtype>(),
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Vectors"
    )]
    pub store_dtype: StoreDtype,

    #[command(flatten)]
    pub computation: ComputationOptions,

    /// Checkpoint interval: 10s, 5m
    ///
    /// Finished batches are saved in .NAME.plmkit-run, beside the output or in --checkpoint-dir, until the output is complete. After
    /// an interruption, the same command resumes from there, and its output equals that of an uninterrupted run.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = interval, help_heading = "Output")]
    pub checkpoint_interval: Duration,

    /// Folder of checkpoints, created if missing [default: that of the output]
    ///
    /// For a workflow engine that retries in another folder: with the same --checkpoint-dir and the same output name, the second try
    /// resumes where the first one was interrupted. Checkpoints of other work are never used.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    #[arg(value_parser = file())]
    pub checkpoint_dir: Option<PathBuf>,

    /// Wait while another process is writing this output, instead of ending with exit code 75
    ///
    /// For a workflow engine that was killed and restarts a task without knowing whether the earlier one has ended.
    #[arg(long, help_heading = "Output")]
    pub wait_for_lock: bool,

    #[cfg(feature = "testing")]
    #[command(flatten)]
    testing: TestingArgs,
}

/// What computes.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct ComputationOptions {
    /// Device to compute on: auto, cpu, cuda or cuda:N
    ///
    /// auto is the first GPU of compute capability 7.5 or newer, or the CPU if the driver is missing or shows no such GPU; a log line
    /// says which. A driver that does not work and a GPU without its CUDA libraries are errors (exit code 69); choose cpu to compute on
    /// the CPU nevertheless. cuda is cuda:0.
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "auto",
        help_heading = "Computation"
    )]
    pub device: Device,

    /// Precision of the computation; auto is the most exact type that is fast on the device, f32 on a CPU
    ///
    /// In f16 and bf16, the linear maps of the layers and attention compute in that type; sums and normalisation stay in f32. A
    /// sequence whose values overflow is computed again in f32. bf16 is six times as fast as f32 with AMX (Intel), twice with AVX512-BF16 (AMD);
    /// other CPUs widen weights of bf16, which take half the memory, and compute in f32. A type that the device does not compute is
    /// refused.
    ///
    /// In int8, on CPUs only, the linear maps multiply 8-bit integers: six times as fast as f32 with AMX, three times with
    /// AVX512-VNNI, and 1.5 times with AVX2. In fp8, on GPUs of compute capability 8.9 and newer, they multiply 8-bit floats (e4m3), all
    /// but the one after attention, and the rest is bf16.
    ///
    /// Before a run in int8 or fp8, the last layer is compared with f32, on a sample of the sequences: a hundredth of the tokens, at most
    /// 4,096, and up to 256 if that is more. The run is refused below a cosine of 0.999 of a mean vector or 0.98 of a residue vector;
    /// with --logits also if log-probabilities of amino acids differ by more than 0.1 on average, or the most probable one in more
    /// than 5 % of positions.
    #[arg(
        long,
        value_parser = dtype(),
        value_name = "TYPE",
        default_value = "auto",
        help_heading = "Computation"
    )]
    pub dtype: std::option::Option<Dtype>,

    /// Kernels of the layers on a CPU: `auto`, `portable`, `neon`, `neon_dot`, `neon_matrix`, `avx2`, `avx_vnni`, `avx512`,
    /// `avx512_vnni`, `avx512_bf16`, `amx` or `libtorch`; auto is the fastest set of the CPU
    ///
    /// The run events and the metadata of the output name the set that computed: of those with the same bits, the least, so that VNNI
    /// sets are `avx2` or `avx512`, and `neon_dot` and, except in bf16, `neon_matrix` are `neon`. `libtorch` is for comparisons:
    /// everything is computed by the library for GPUs and, there, without plmkit's kernels.
    #[arg(
        long,
        value_name = "KERNELS",
        default_value = "auto",
        help_heading = "Computation"
    )]
    #[arg(value_parser = |text: &str| kernels(text, Isa::is_available))]
    pub kernels: Kernels,

    /// CPU threads [default: the CPUs that this process may use, at most `SLURM_CPUS_PER_TASK`]
    #[arg(long, value_name = "N", help_heading = "Computation")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Batches to read ahead of the computation
    #[arg(
        long,
        value_name = "N",
        default_value = "4",
        help_heading = "Computation"
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub prefetch: u16,

    /// How progress is shown on standard error
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value = "auto",
        help_heading = "Monitoring"
    )]
    pub progress: ProgressMode,
}

impl Program for Args {
    const NAME: &'static str = "gpu-embed";

    fn common(&self) -> &Common {
        &self.common
    }
}

impl Args {
    /// The command line that names a model and options alone: files are named later.
    pub fn new(model: PathBuf, options: Given<Options>, common: Common) -> Self {
        Self {
            batches: Vec::new(),
            model,
            download: false,
            out: None,
            rejects: None,
            force: false,
            probe: false,
            serve: None,
            serve_model: None,
            digests: None,
            events: None,
            options,
            #[cfg(feature = "testing")]
            profile: Profile { profile: false },
            common,
        }
    }

    /// What computes, and in which type.
    pub fn compute(&self) -> ComputeOptions {
        let asked = &self.options.computation;
        ComputeOptions {
            device: self.serve.unwrap_or(asked.device),
            dtype: asked.dtype,
            kernels: asked.kernels,
            profile: false,
        }
    }

    /// What all outputs of a model have in common.
    pub(super) fn config(&self) -> Result<RunConfig, Fault> {
        let options = &self.options;
        let outputs = Outputs::from(options.outputs.clone());
        if options.scores_positions.is_some() && outputs.scores != Some(Scores::Masked) {
            let what = "--scores-positions: expected --scores masked with it";
            return Err(Fault::usage(what));
        }
        let ModelName { name, revision } = model_name(&self.model);
        let name = options.model_name.clone().unwrap_or(name);
        if name.contains(char::is_control) {
            let what = "expected a name of the model without control characters; --model-name";
            return Err(Fault::usage(format!(
                "{what} gives another: {}",
                Quoted(&name)
            )));
        }
        #[cfg_attr(not(feature = "testing"), expect(unused_mut))]
        let mut config = RunConfig {
            model_name: ModelName { name, revision },
            model: self.model.clone(),
            compute: self.compute(),
            outputs,
            scores_positions: options.scores_positions.clone(),
            windows: options.windows,
            store_dtype: options.store_dtype,
            checkpoint_interval: options.checkpoint_interval,
            threads: threads(options.computation.threads),
            prefetch: options.computation.prefetch.into(),
            digests: self.digests.clone(),
            injection: Injection::default(),
        };
        #[cfg(feature = "testing")]
        {
            config.compute.profile = self.profile.profile;
            config.injection = options.testing.inject.clone();
        }
        Ok(config)
    }

    /// One output.
    pub(super) fn job(&self) -> Result<Job, Fault> {
        let batches = files_of(self.batches.clone(), &["arrow"])?;
        ensure_files_distinct(self, &batches)?;
        Ok(Job {
            batches,
            out: self.out.clone().unwrap_or_default(),
            rejects: self.rejects.clone(),
            checkpoint_dir: self.options.checkpoint_dir.clone(),
            events: self.events.clone(),
            force: self.force,
            wait: self.options.wait_for_lock,
        })
    }
}

/// Parses a type; `None` for `auto`.
fn dtype() -> impl TypedValueParser<Value = Option<Dtype>> {
    let names = std::iter::once("auto").chain(Dtype::VARIANTS.iter().copied());
    PossibleValuesParser::new(names).try_map(|text| match text.as_str() {
        "auto" => Ok(None),
        name => name.parse().map(Some),
    })
}

/// Parses kernels. Refuses those that the CPU cannot run, because it does not have an instruction set, by `has`.
fn kernels(text: &str, has: impl Fn(Isa) -> bool) -> Result<Kernels, String> {
    let kernels = text.parse::<Kernels>()?;
    let needed = match kernels {
        Kernels::Isa(isa) => isa,
        Kernels::Auto | Kernels::Libtorch => Isa::Portable,
    };
    if has(needed) {
        Ok(kernels)
    } else {
        Err(format!("this CPU has no {needed}"))
    }
}

/// Checks that the outputs can be renamed into place, before a model is fetched.
pub(crate) fn check_outputs(args: &Args) -> Result<(), Fault> {
    let outputs = named("--out", &args.out).chain(named("--rejects", &args.rejects));
    ensure_no_stream(&outputs.collect::<Vec<NamedPath>>())
}

/// Checks that no output overwrites the batches, the model or another output.
fn ensure_files_distinct(args: &Args, batches: &[PathBuf]) -> Result<(), Fault> {
    let weights = model_files(&args.model);
    let lists = lists_of(&args.batches);
    let inputs: Vec<NamedPath> = named("a batches file", batches)
        .chain(named("a list of batches", &lists))
        .chain(named("--scores-positions", &args.options.scores_positions))
        .chain(named("a file of the model", &weights))
        .collect();
    let out = args.out.clone().unwrap_or_default();
    let rejects = args.rejects.clone();
    let rejects = (!args.probe).then(|| rejects.unwrap_or_else(|| rejects_beside(&out)));
    let outputs: Vec<NamedPath> = named("--out", &args.out)
        .chain(named("--rejects", &rejects))
        .chain(named("--events", &args.events))
        .collect();
    ensure_distinct(&inputs, &outputs)?;
    let list = args.rejects.as_deref().filter(|_| !args.probe);
    list.map_or(Ok(()), keep_other_lists)?;
    // Without --force, the run looks at what is there.
    if !(args.force || args.probe) {
        return Ok(());
    }
    let own = if args.probe {
        Replaceable::Starts(b"{\n  \"contract\": ")
    } else {
        Replaceable::Damaged(FileKind::Embeddings, b"PAR1")
    };
    ensure_same_kind(&[("--out", &out)], own)
}

/// Checks that no list of rejects replaces anything else, nor that of `fasta-shard`, which has no starts.
fn keep_other_lists(path: &Path) -> Result<(), Fault> {
    let is_there = path
        .metadata()
        .is_ok_and(|found| found.is_file() && found.len() > 0);
    let mut head = Vec::new();
    let _ = is_there.then(|| File::open(path).map(|file| file.take(64).read_to_end(&mut head)));
    // Lines below may be damaged.
    if !is_there || head.starts_with(format!("{REJECTED_ROWS_HEADER}\n").as_bytes()) {
        return Ok(());
    }
    let what = "exists, and is no list of gpu-embed, which nothing replaces";
    let what = format!("--rejects {}: {what}", path_text(path));
    Err(Fault::new(Exit::CannotCreate, what))
}

/// Gives paths a name for messages.
fn named<'p>(
    name: &'static str,
    paths: impl IntoIterator<Item = &'p PathBuf>,
) -> impl Iterator<Item = NamedPath<'p>> {
    let paths = paths.into_iter();
    paths.map(move |path| (name, path.as_path()))
}

/// Lists the files of a model: those in its folder, or a weight file and the config.json beside it.
fn model_files(model: &Path) -> Vec<PathBuf> {
    match fs::read_dir(model) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![model.to_owned(), model.with_file_name("config.json")],
    }
}

/// Returns the threads that were `asked` for, or the [default](default_threads). Warns of more than there are CPUs.
pub fn threads(asked: Option<u16>) -> NonZeroUsize {
    let Some(asked) = asked.and_then(|count| NonZeroUsize::new(count.into())) else {
        return default_threads();
    };
    let available = available_threads();
    if asked > available {
        let cpus = plural(available.get() as u64, "CPU");
        tracing::warn!(
            "--threads {asked}: this process may use {cpus}, and more threads are slower"
        );
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_the_cpu_cannot_run_are_refused() {
        let has = |isa| isa <= Isa::Avx2;
        assert_eq!(kernels("avx2", has), Ok(Kernels::Isa(Isa::Avx2)));
        assert_eq!(kernels("libtorch", has), Ok(Kernels::Libtorch));
        let refused = Err("this CPU has no avx_vnni".to_owned());
        assert_eq!(kernels("avx_vnni", has), refused);
        assert!(kernels("avx1024", has).is_err());
    }
}
