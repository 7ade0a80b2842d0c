//! The command line.

use std::path::{Path, PathBuf};

use clap::Parser;
use plmkit_cli::{Common, Fault, NamedPath, Program, file, files_of, keep_apart};

use plmkit_contract::path_text;

use crate::dataset::Dataset;

/// Checks that embeddings are complete, finite and right
///
/// Every file is read to its end and its digest verified. With --shards, each row of the shards must be there
/// exactly once, with its id, length and residues; with --reference, vectors must agree with those of the reference.
/// A check whose input is not given is skipped, and the report says so.
///
/// Exit codes: 0, no check failed; 1, a check failed; 65, a file is damaged or not what it should be; 66, a file is
/// missing.
#[derive(Debug, Parser)]
#[command(name = "validate-embeddings", version)]
pub(crate) struct Args {
    /// Embeddings to check, written by gpu-embed; several files are taken as one set, and a folder stands for the .parquet files in it
    #[arg(value_name = "EMB.parquet", required_unless_present = "dataset")]
    #[arg(value_parser = file())]
    embeddings: Vec<PathBuf>,

    /// Folder of a sample's results, or its dataset.json: check what is in it, in place of lists of files
    ///
    /// The folder has the embeddings in embeddings/, the shards with manifest.json and rejects.csv in shards/, and lists of what
    /// gpu-embed could not embed in rejects/, as the workflows leave them. The verdict goes into dataset.json in the folder,
    /// which names all parts with their digests, the model, the options, the columns and the counts; one that is there is replaced,
    /// unless a file is damaged or missing (65, 66). Where shards/ is not there any more, the embeddings have to be those that
    /// dataset.json names, and it stays as it is.
    #[arg(long, value_name = "DIR", help_heading = "Expectations")]
    #[arg(conflicts_with_all = ["embeddings", "shards", "rejects", "manifest"])]
    #[arg(value_parser = file())]
    dataset: Option<PathBuf>,

    /// Shards that the embeddings were made from: all of them, or their folder
    #[arg(long, value_name = "SHARD.parquet", num_args = 1.., help_heading = "Expectations")]
    #[arg(value_parser = file())]
    shards: Vec<PathBuf>,

    /// rejects.csv of the same shards, and those of gpu-embed if it wrote any; a folder stands for the .csv files in it
    ///
    /// Shards and rejects together must account for every input record. A row of the shards may be missing from the
    /// embeddings if gpu-embed listed it, in the file that it wrote together with them.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        requires = "shards",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = file())]
    rejects: Vec<PathBuf>,

    /// manifest.json of the same shards
    ///
    /// The shards must be all of the manifest and no other, and rejects.csv the file that it knows by its digest: then
    /// a record that was lost at the end of the input shows as well.
    #[arg(
        long,
        value_name = "FILE.json",
        requires = "shards",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = file())]
    manifest: Option<PathBuf>,

    /// Vectors to compare with: a Parquet file of any origin, with `id`, perhaps `start`, and vector columns
    ///
    /// Rows are compared by id and start (0 where the reference has no such column), columns by name; where both
    /// sides have a single vector column, its name does not matter. Vectors are lists or fixed-size lists of
    /// floating-point numbers. Residue vectors, logits and contacts of gpu-embed are not compared with each other. A
    /// reference may be a sample: rows that it does not have are not compared. It is held in memory.
    #[arg(long, value_name = "REF.parquet", help_heading = "Expectations")]
    #[arg(value_parser = file())]
    reference: Option<PathBuf>,

    /// Smallest cosine with the reference that passes
    #[arg(
        long,
        value_name = "COSINE",
        default_value_t = 0.999,
        help_heading = "Expectations"
    )]
    #[arg(value_parser = cosine, allow_negative_numbers = true)]
    min_cosine: f64,

    /// Write the verdict as JSON; `-` is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    report: Option<PathBuf>,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(
        help = "Write the verdict as a table for MultiQC, with the sample's name from the file's name"
    )]
    mqc: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

impl Program for Args {
    const NAME: &'static str = "validate-embeddings";

    fn common(&self) -> &Common {
        &self.common
    }
}

fn cosine(text: &str) -> Result<f64, String> {
    let cosine: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (-1.0..=1.0).contains(&cosine) {
        Ok(cosine)
    } else {
        Err("expected a number from -1 to 1".to_owned())
    }
}

/// What to check.
#[derive(Debug)]
pub(crate) struct Config {
    /// At least one.
    pub(crate) embeddings: Vec<PathBuf>,
    /// None: coverage is not checked.
    pub(crate) shards: Vec<PathBuf>,
    /// None: whether every record of the input is in a shard is not checked.
    pub(crate) rejects: Vec<PathBuf>,
    /// None: whether shards and rejects are all there were is not checked.
    pub(crate) manifest: Option<PathBuf>,
    pub(crate) reference: Option<PathBuf>,
    /// Where all of these were found, if they were not named.
    pub(crate) dataset: Option<Dataset>,
    /// From -1 to 1.
    pub(crate) min_cosine: f64,
    pub(crate) report: Option<PathBuf>,
    pub(crate) mqc: Option<PathBuf>,
}

impl Config {
    /// What reports call a file.
    pub(crate) fn name(&self, path: &Path) -> String {
        match &self.dataset {
            Some(dataset) => path_text(dataset.relative(path)),
            None => path_text(path),
        }
    }
}

impl TryFrom<Args> for Config {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        let mut config = Self {
            dataset: args.dataset.map(Dataset::new),
            embeddings: files_of(args.embeddings, &["parquet"])?,
            shards: files_of(args.shards, &["parquet"])?,
            rejects: files_of(args.rejects, &["csv"])?,
            manifest: args.manifest,
            reference: args.reference,
            min_cosine: args.min_cosine,
            report: args.report,
            mqc: args.mqc,
        };
        if let Some(dataset) = config.dataset.clone() {
            dataset.find(&mut config)?;
        }
        let inputs: Vec<NamedPath> = [
            ("the embeddings", config.embeddings.as_slice()),
            ("--shards", &config.shards),
            ("--rejects", &config.rejects),
            ("--manifest", config.manifest.as_slice()),
            ("--reference", config.reference.as_slice()),
        ]
        .into_iter()
        .flat_map(|(name, paths)| paths.iter().map(move |path| (name, path.as_path())))
        .collect();
        let outputs: Vec<NamedPath> = [("--report", &config.report), ("--mqc", &config.mqc)]
            .into_iter()
            .filter_map(|(name, path)| Some((name, path.as_deref()?)))
            .collect();
        keep_apart(&inputs, &outputs)?;
        Ok(config)
    }
}
