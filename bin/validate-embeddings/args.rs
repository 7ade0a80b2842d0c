//! The command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use clap::{Parser, ValueEnum};
use plmkit_cli::{Common, Exit, Fault, NamedPath, Program, file, files_of, keep_apart};

use plmkit_check::{Expectations, Tiers, parse_share};
use plmkit_contract::path_text;

use crate::dataset::Dataset;

/// Check that embeddings are complete, finite and correct
///
/// Every file is read to its end, and its digest is verified. With --shards, the embeddings must have each row of the
/// shards exactly once, with its id, length and residues. With --reference, vectors must agree with the reference. A
/// check without its input is skipped, and the report lists it as skipped.
///
/// Exit codes: 0, no check failed; 1, a check failed; 65, a file is damaged or of another kind; 66, a file is missing.
#[derive(Debug, Parser)]
#[command(name = "validate-embeddings", version)]
pub(crate) struct Args {
    /// Embeddings of gpu-embed to check; several files are one set, and a folder stands for its .parquet files
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
    #[arg(value_parser = file().map(Dataset::new))]
    pub(crate) dataset: Option<Dataset>,

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

    /// Vectors to compare with: any Parquet file with `id`, an optional `start`, and vector columns
    ///
    /// Rows are matched by id and start (0 without such a column), columns by name. If both sides have a single vector
    /// column, its name does not matter. Vectors are lists or fixed-size lists of floating-point numbers. Residue
    /// vectors, logits and contacts of gpu-embed are not compared with each other. The reference may be a sample: rows
    /// that it lacks are not compared. The reference is held in memory.
    #[arg(long, value_name = "REF.parquet", help_heading = "Expectations")]
    #[arg(value_parser = file())]
    pub(crate) reference: Option<PathBuf>,

    /// Smallest accepted cosine with the reference
    #[arg(
        long,
        value_name = "COSINE",
        default_value_t = 0.999,
        requires = "reference",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = cosine, allow_negative_numbers = true)]
    pub(crate) min_cosine: f64,

    /// Smallest cosine of the vectors that may be below --min-cosine
    #[arg(
        long,
        value_name = "COSINE",
        requires_all = ["reference", "lenient_share"],
        help_heading = "Expectations"
    )]
    #[arg(value_parser = cosine, allow_negative_numbers = true)]
    pub(crate) lenient_cosine: Option<f64>,

    /// Share of a column's vectors that may be below --min-cosine, such as 1%
    #[arg(
        long,
        value_name = "SHARE",
        requires = "lenient_cosine",
        help_heading = "Expectations"
    )]
    #[arg(value_parser = parse_share)]
    pub(crate) lenient_share: Option<f64>,

    /// What every file must be: model=NAME or 8 digits of its digest, dtype=, columns=A+B, max-rejected=1%
    ///
    /// Entries are separated by commas; of two for one thing the last holds. Without max-rejected any share of the records may
    /// be rejected, but not all of them: an empty set passes only with max-rejected=100%.
    #[arg(long, value_name = "NAME=VALUE,…", help_heading = "Expectations")]
    pub(crate) expect: Vec<Expectations>,

    /// Compute a sample of the rows again, and compare the vectors: folder or weight file of the model
    ///
    /// gpu-embed computes them on the CPU in f32, from the sequences in the shards. Each embeddings file has its share of the
    /// sample, over all lengths; where files are more than rows, some files have one row. Tolerances are those of the type
    /// that the embeddings were computed in. A file whose rows differ, or that is much nearer or farther than the others, is
    /// named.
    #[arg(long, value_name = "MODEL", help_heading = "Spot check", value_parser = file())]
    pub(crate) model: Option<PathBuf>,

    /// Rows to compute again
    #[arg(
        long,
        value_name = "ROWS",
        default_value = "200",
        requires = "model",
        help_heading = "Spot check"
    )]
    pub(crate) sample: NonZero<usize>,

    /// Seed of the choice of rows
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        requires = "model",
        help_heading = "Spot check"
    )]
    pub(crate) seed: u64,

    /// Switch off a check of values
    #[arg(
        long,
        value_name = "CHECK",
        value_delimiter = ',',
        help_heading = "Expectations"
    )]
    pub(crate) skip: Vec<Optional>,

    /// Threads; all cores by default
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,

    /// Write the verdict as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,

    /// Write the verdict as a page: one HTML file that opens without a network; - is standard output
    ///
    /// What was checked and what was not, lengths, norms, a map of a sample of the vectors, the rows and files that are
    /// most unlike the others.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(help = "Write the verdict as a MultiQC table; the file's name gives the sample's name")]
    pub(crate) mqc: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

/// A check of values that has false alarms where data are unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Optional {
    /// Whether the columns of a row fit together
    Pooling,
    /// Whether equal sequences have equal vectors, and others have not
    Sequences,
    /// Whether a dimension never changes
    Constant,
    /// Whether a vector is unlike others of its length
    Outliers,
    /// Whether a file is unlike the other files
    Centres,
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

impl Args {
    /// Puts files in place of folders and of the dataset, and checks that no output is one of them.
    pub(crate) fn with_files(mut self) -> Result<Self, Fault> {
        self.embeddings = files_of(self.embeddings, &["parquet"])?;
        self.shards = files_of(self.shards, &["parquet"])?;
        self.rejects = files_of(self.rejects, &["csv"])?;
        if let Some(dataset) = self.dataset.clone() {
            dataset.add_files(&mut self)?;
        }
        if self.model.is_some() && self.shards.is_empty() {
            let what = "--model needs the shards of the embeddings: add --shards";
            return Err(Fault::new(Exit::Usage, what.to_owned()));
        }
        if let Some(model) = self.model.as_ref().filter(|model| !model.exists()) {
            let what = format!("{}: no such file or folder", path_text(model));
            return Err(Fault::new(Exit::NoInput, what));
        }
        let inputs = [
            ("the embeddings", self.embeddings.as_slice()),
            ("--shards", &self.shards),
            ("--rejects", &self.rejects),
            ("--manifest", self.manifest.as_slice()),
            ("--reference", self.reference.as_slice()),
        ];
        let inputs = inputs
            .into_iter()
            .flat_map(|(name, paths)| named(name, paths));
        let report = named("--report", self.report.as_slice());
        let others = [
            ("--mqc", self.mqc.as_slice()),
            ("--html", self.html.as_slice()),
        ];
        let others = others
            .into_iter()
            .flat_map(|(name, path)| named(name, path));
        let outputs: Vec<NamedPath> = report.chain(others).collect();
        keep_apart(&inputs.collect::<Vec<_>>(), &outputs)?;
        Ok(self)
    }

    /// How near vectors must be to those of the reference.
    pub(crate) fn tiers(&self) -> Tiers {
        Tiers {
            strict: self.min_cosine,
            lenient: self.lenient_cosine.unwrap_or(self.min_cosine),
            lenient_share: self.lenient_share.unwrap_or_default(),
        }
    }

    /// What reports call a file.
    pub(crate) fn name(&self, path: &Path) -> String {
        match &self.dataset {
            Some(dataset) => path_text(dataset.relative(path)),
            None => path_text(path),
        }
    }
}

fn named<'a>(name: &'a str, paths: &'a [PathBuf]) -> impl Iterator<Item = NamedPath<'a>> {
    paths.iter().map(move |path| (name, path.as_path()))
}
