//! The command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use plmkit_check::parse_share;
use plmkit_cli::{
    Common, Fault, Given, NamedPath, Program, ensure_distinct, ensure_reports, file, files_of,
    lists_of,
};
use plmkit_dataset::{dataset_folder, own_files};
use plmkit_kit::{is_stream, path_text};
use plmkit_store::AtomicFile;

use super::dataset::dataset_files;
use super::lists::without_lists;

/// Check that embeddings are complete, finite and correct
///
/// Every file is read to its end, and its digest is verified. With --shards, the embeddings must have each row of the
/// shards exactly once, with its id, length and residues. With --reference, vectors must agree with the reference. A
/// check without its input is skipped, and the report lists it as skipped.
///
/// Exit codes: 0, no check failed; 1, a check failed; 65, a file is damaged or of another kind; 66, a file is missing.
#[derive(Clone, Debug, Parser)]
#[command(name = "validate-embeddings", version)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Embeddings of gpu-embed to check; several files are one set
    ///
    /// A folder stands for its .parquet files, and @FILE for the files that FILE lists, one path on each line. The same
    /// holds for --shards and --rejects.
    #[arg(value_name = "EMB.parquet", required_unless_present = "dataset")]
    #[arg(value_parser = file())]
    pub(crate) embeddings: Vec<PathBuf>,

    /// Folder of a sample's results, or its dataset.json: check all files in it
    ///
    /// The workflows write this folder: embeddings in embeddings/, shards with manifest.json and rejects.csv in shards/,
    /// and the lists of gpu-embed in rejects/. The verdict is written to dataset.json in the folder, with all parts and
    /// their digests, the model, the options, the columns and the counts. An existing dataset.json is overwritten, unless
    /// a file is damaged or missing (65, 66). Without shards/, the embeddings must be those that dataset.json lists, and
    /// dataset.json is not changed.
    #[arg(long, value_name = "DIR", help_heading = "Expectations")]
    #[arg(conflicts_with_all = ["embeddings", "shards", "rejects", "manifest"])]
    #[arg(value_parser = file().map(dataset_folder))]
    pub dataset: Option<PathBuf>,

    /// All shards that the embeddings were made from, or their folder
    #[arg(long, value_name = "SHARD.parquet", num_args = 1.., help_heading = "Expectations")]
    #[arg(value_parser = file())]
    pub(crate) shards: Vec<PathBuf>,

    /// rejects.csv of the same shards, and any lists of gpu-embed; a folder stands for its .csv files
    ///
    /// Shards and rejects together must have every input record. The embeddings may lack a row of the shards if the list
    /// that gpu-embed wrote with them has it.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        requires = "shards",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = file())]
    pub(crate) rejects: Vec<PathBuf>,

    /// manifest.json of the same shards
    ///
    /// The shards must be exactly those of the manifest, and rejects.csv must have the digest that the manifest lists. This
    /// also finds records that were lost at the end of the input.
    #[arg(
        long,
        value_name = "FILE.json",
        requires = "shards",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = file())]
    pub(crate) manifest: Option<PathBuf>,

    /// Compute a sample of the rows again, and compare the vectors: the model, as gpu-embed takes it
    ///
    /// gpu-embed computes them on the CPU in f32, from the sequences in the shards. The sample has at least eight rows of each
    /// shard, over all lengths, and each column; it costs at most a tenth of all tokens, unless --spot-check says how many rows.
    /// Tolerances are those of the type that the embeddings were computed in. A model other than that of the embeddings is an error (65).
    #[arg(long, value_name = "MODEL", help_heading = "Spot check", value_parser = file())]
    pub model: Option<PathBuf>,

    /// Rows that validate-embeddings recompute has computed, instead of --model; a folder stands for its .parquet files
    #[arg(long, value_name = "SAMPLE.parquet", num_args = 1.., conflicts_with = "model")]
    #[arg(help_heading = "Spot check")]
    #[arg(value_parser = file())]
    pub(crate) recomputed: Vec<PathBuf>,

    /// Threads [default: the CPUs that this process may use, at most `SLURM_CPUS_PER_TASK`]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,

    /// Accept a set without rows: every record is rejected, or there is none
    #[arg(long, help_heading = "Expectations")]
    pub allow_empty: bool,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(help = "Write the verdict as a MultiQC table; the file's name gives the sample's name")]
    #[expect(missing_docs, reason = "the help says it")]
    pub mqc: Option<PathBuf>,

    #[command(flatten)]
    pub options: Given<Options>,

    /// The folder for temporary files, if it is not that of the system.
    #[arg(skip)]
    pub temporary: Option<PathBuf>,

    /// The options of all programs.
    #[command(flatten)]
    pub common: Common,
}

/// The options that decide what is expected of embeddings.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Vectors to compare with: any Parquet file with `id`, an optional `start`, and vector columns
    ///
    /// Rows are matched by id and start (0 without such a column), columns by name. If both sides have a single vector column, its
    /// name does not matter. Vectors are lists or fixed-size lists of floating-point numbers. Residue vectors, logits and contacts of
    /// gpu-embed are not compared with each other. The reference may be a sample: rows that it lacks are not compared.
    /// The reference is held in memory.
    #[arg(long, value_name = "REF.parquet", help_heading = "Reference", value_parser = file())]
    pub reference: Option<PathBuf>,

    /// Smallest accepted cosine with the reference
    #[arg(
        long,
        value_name = "COSINE",
        default_value_t = 0.999,
        requires = "reference",
        help_heading = "Reference"
    )]
    #[arg(value_parser = cosine, allow_negative_numbers = true)]
    pub(crate) min_cosine: f64,

    #[command(flatten)]
    pub sampling: Sampling,

    /// Largest accepted share of rejected records, such as 1% [default: 5%]
    #[arg(long, value_name = "SHARE", help_heading = "Expectations", value_parser = parse_share)]
    pub(crate) max_rejected: Option<f64>,

    /// Switch off a check of values; several are separated by commas
    #[arg(
        long,
        value_name = "CHECK",
        value_delimiter = ',',
        value_parser = optional(),
        help_heading = "Expectations"
    )]
    pub(crate) skip: Vec<String>,

    /// Write the verdict as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Write the verdict as a page: one HTML file that opens without a network; - is standard output
    ///
    /// What failed, and what to do about it; the spot check, the agreement with a reference, and the origin; what was checked
    /// and what was not.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Compute a sample of the rows again, for a verdict by --recomputed
    ///
    /// A shard is computed again where it is embedded, beside the others; validate-embeddings --recomputed compares. The rows, the
    /// columns and the tolerance are those that --model has there.
    Recompute {
        /// Embeddings of the shards
        #[arg(value_name = "EMB.parquet", required = true, value_parser = file())]
        embeddings: Vec<PathBuf>,

        /// Their shards
        #[arg(long, value_name = "SHARD.parquet", num_args = 1.., required = true, value_parser = file())]
        shards: Vec<PathBuf>,

        /// manifest.json of all shards, which says how many rows of these are in the sample
        #[arg(long, value_name = "FILE.json", value_parser = file())]
        manifest: Option<PathBuf>,

        /// The model, as gpu-embed takes it
        #[arg(long, value_name = "MODEL", value_parser = file())]
        model: PathBuf,

        /// Write the rows to this file
        #[arg(long, value_name = "SAMPLE.parquet", value_parser = file())]
        out: PathBuf,

        #[command(flatten)]
        sampling: Sampling,

        /// Threads [default: the CPUs that this process may use, at most `SLURM_CPUS_PER_TASK`]
        #[arg(long, value_name = "N")]
        threads: Option<NonZero<usize>>,
    },
}

impl Program for Args {
    const NAME: &'static str = "validate-embeddings";

    fn common(&self) -> &Common {
        &self.common
    }
}

/// Which rows are computed again: how many in all, and the seed of their choice.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub struct Sampling {
    /// Rows to compute again in all, at least eight of each shard; 0: none [default: a tenth of the tokens, at most those of 66 rows]
    #[arg(long = "spot-check", value_name = "ROWS", help_heading = "Spot check")]
    pub(crate) sample: Option<u64>,

    /// Seed of the choice of rows
    #[arg(
        long = "spot-check-seed",
        value_name = "NUMBER",
        default_value_t = 0,
        help_heading = "Spot check"
    )]
    pub(crate) seed: u64,
}

/// The checks of values that have false alarms where data are unusual.
fn optional() -> PossibleValuesParser {
    [
        (
            "outliers",
            "Whether all vectors of a file have about one size and direction",
        ),
        ("pooling", "Whether the columns of a row fit together"),
        (
            "sequences",
            "Whether equal sequences have equal vectors, and others have not",
        ),
        ("constant", "Whether a dimension never changes"),
    ]
    .map(|(check, question)| PossibleValue::new(check).help(question))
    .into()
}

fn cosine(text: &str) -> Result<f64, String> {
    let cosine: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (-1.0..=1.0).contains(&cosine) {
        Ok(cosine)
    } else {
        Err("expected a number from -1 to 1".to_owned())
    }
}

impl Args {
    /// The command line with options alone: a dataset is named later.
    pub fn new(options: Given<Options>, threads: Option<NonZero<usize>>, common: Common) -> Self {
        Self {
            command: None,
            embeddings: Vec::new(),
            dataset: None,
            shards: Vec::new(),
            rejects: Vec::new(),
            manifest: None,
            model: None,
            recomputed: Vec::new(),
            threads,
            allow_empty: false,
            mqc: None,
            temporary: None,
            options,
            common,
        }
    }

    /// Puts files in place of folders and of the dataset, and checks that no output is one of them.
    pub(crate) fn with_files(mut self) -> Result<Self, Fault> {
        let given = [&self.embeddings, &self.shards, &self.rejects];
        let lists = lists_of(given.into_iter().flatten());
        self.embeddings = files_of(self.embeddings, &["parquet"])?;
        self.shards = without_lists(files_of(self.shards, &["parquet"])?);
        self.rejects = files_of(self.rejects, &["csv"])?;
        self.recomputed = files_of(self.recomputed, &["parquet"])?;
        if let Some(dataset) = &self.dataset {
            let files = dataset_files(dataset)?;
            (self.embeddings, self.shards) = (files.embeddings, files.shards);
            (self.rejects, self.manifest) = (files.rejects, files.manifest);
        }
        let recomputed = self.model.is_some() || !self.recomputed.is_empty();
        if recomputed && self.shards.is_empty() {
            let what = match self.dataset {
                Some(_) => {
                    "--model and --recomputed need shards/, which the folder lacks: name the embeddings, and the shards with --shards"
                }
                None => "--model and --recomputed need the shards of the embeddings: add --shards",
            };
            return Err(Fault::usage(what.to_owned()));
        }
        let dataset = self
            .dataset
            .as_ref()
            .map(|dataset| own_files(dataset))
            .unwrap_or_default();
        let config = self.model.as_ref().filter(|model| model.is_file());
        let config = config.map(|model| model.with_file_name("config.json"));
        let inputs = [
            ("the embeddings", self.embeddings.as_slice()),
            ("--dataset", &dataset),
            ("--model", self.model.as_slice()),
            ("--model", config.as_slice()),
            ("a list of files", &lists),
            ("--shards", &self.shards),
            ("--rejects", &self.rejects),
            ("--manifest", self.manifest.as_slice()),
            ("--reference", self.options.reference.as_slice()),
            ("--recomputed", &self.recomputed),
        ];
        let inputs = inputs
            .iter()
            .flat_map(|(name, paths)| paths.iter().map(|path| (*name, &**path)));
        let outputs = self.outputs();
        ensure_distinct(&inputs.collect::<Vec<_>>(), &outputs)?;
        ensure_reports(&outputs)?;
        Ok(self)
    }

    /// Checks that reports can be made, and replace reports alone. The table for `MultiQC` is left out: plmkit names it.
    ///
    /// # Errors
    /// One would replace another file, or cannot be created.
    pub fn check(&self) -> Result<(), Fault> {
        let is_report = |(option, _): &NamedPath| *option != "--mqc";
        let outputs = self.outputs().into_iter().filter(is_report);
        let outputs: Vec<NamedPath> = outputs.collect();
        let reference = self.options.reference.iter();
        let inputs: Vec<NamedPath> = reference.map(|path| ("--reference", &**path)).collect();
        ensure_distinct(&inputs, &outputs)?;
        ensure_reports(&outputs)?;
        for (_, path) in outputs.iter().filter(|(_, path)| !is_stream(path)) {
            // Nothing is computed for a folder that is missing.
            drop(AtomicFile::create(path)?);
        }
        Ok(())
    }

    fn outputs(&self) -> Vec<NamedPath<'_>> {
        let outputs = [
            ("--report", &self.options.report),
            ("--mqc", &self.mqc),
            ("--html", &self.options.html),
        ];
        let outputs = outputs.into_iter();
        let outputs = outputs.filter_map(|(name, path)| Some((name, path.as_deref()?)));
        outputs.collect()
    }

    /// What reports call a file.
    pub(crate) fn name(&self, path: &Path) -> String {
        let dataset = self.dataset.as_ref();
        let inner = dataset.and_then(|dataset| path.strip_prefix(dataset).ok());
        path_text(inner.unwrap_or(path))
    }
}
