//! `query-embeddings combine`.

use std::iter;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, ProgressDisplay, ProgressMode, Stop, file, keep_renameable};
use plmkit_contract::{ListedDataset, path_text, plural};
use plmkit_dataset::{
    CombineConfig, DatasetFolder, check_outside, combine, ids_beside, write_matrix,
};
use plmkit_store::StoreError;

use crate::keep_dataset;

/// Combine the parts of a dataset into few large files, or a matrix of numpy
///
/// The rows are those of the parts, bit by bit, in the order of the input. The new folder appears when it is complete, with a
/// dataset.json of its own: all readers use it without shards. An interrupted run continues with the files that it finished.
/// Memory stays below 1 GB whatever the number of rows and parts.
#[derive(Debug, clap::Args)]
pub(crate) struct CombineArgs {
    /// Folder of a sample's results, or its dataset.json; its validation has passed. For a matrix, an embeddings file as well
    #[arg(value_name = "DATASET", value_parser = file().map(DatasetFolder::new))]
    dataset: DatasetFolder,

    /// What to write: `parquet`, or `npy`, a matrix with the vectors of one column
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "parquet")]
    format: Format,

    /// Column of the matrix, if several have a vector for each protein
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,

    /// Folder to write: embeddings/part-00000.parquet …, dataset.json, and rejects/ where there are any
    ///
    /// An existing folder of the same parts and options is verified and kept; any other is refused. For a matrix, the file to write;
    /// NAME.ids.txt beside it has the id of each row.
    #[arg(long, value_name = "DIR", value_parser = file())]
    out: PathBuf,

    /// Rows of a Parquet file [default: 1000000]
    ///
    /// A million rows of 1,280 values of f32 take 5 GB. With residue vectors, choose fewer.
    #[arg(long, value_name = "N")]
    rows_per_file: Option<NonZero<u64>>,

    /// Leave out the records that fasta-shard --dedup left out of the shards: another record has their residues
    ///
    /// By default they have rows, too: those of the other records, with keys of their own.
    #[arg(long)]
    distinct: bool,

    /// Earlier datasets that fasta-shard --known knew: the records whose residues they have get their rows
    #[arg(long, value_name = "DATASET", num_args = 1.., value_parser = file().map(DatasetFolder::new))]
    known: Vec<DatasetFolder>,

    /// Replace another combined dataset or matrix at --out
    #[arg(long)]
    force: bool,

    /// How progress is shown on standard error
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    progress: ProgressMode,
}

/// Rows of a Parquet file, if nothing else is asked for.
const ROWS_PER_FILE: NonZero<u64> = NonZero::new(1_000_000).unwrap();

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Parquet,
    Npy,
}

impl CombineArgs {
    pub(crate) fn run(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        match self.format {
            Format::Npy => self.write_matrix(quiet, stop),
            Format::Parquet if self.column.is_some() => {
                Err(Fault::usage("--column: expected --format npy with it"))
            }
            Format::Parquet => self.combine(quiet, stop),
        }
    }

    fn write_matrix(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        if self.distinct || !self.known.is_empty() || self.rows_per_file.is_some() {
            let what = "--format npy: expected neither --distinct, --known nor --rows-per-file; combine the dataset first";
            return Err(Fault::usage(what));
        }
        keep_renameable(&[("--out", &self.out)])?;
        let opened = self.dataset.open_passed(stop)?;
        let rows = opened.parts.rows();
        let ids = ids_beside(&self.out);
        keep_dataset(&opened, &[], &[("--out", &self.out), ("--out", &ids)])?;
        check_outside(&self.out, self.dataset.path())?;
        // Two matrices would have one file of ids.
        if self.out.extension().is_none_or(|found| found != "npy") {
            let out = path_text(&self.out);
            return Err(Fault::usage(format!(
                "--out {out}: expected a name that ends with .npy"
            )));
        }
        let mut progress = ProgressDisplay::start(self.progress, quiet, "rows", rows);
        let column = self.column.as_deref();
        let (parts, to) = (&opened.parts, (&*self.out, self.force));
        let written = write_matrix(parts, column, to, |rows| progress.advance(rows), stop);
        progress.finish();
        written?;
        let out = path_text(&self.out);
        tracing::info!("{out}, {}: {}", path_text(&ids), plural(rows, "row"));
        let left_out = opened.listed.as_ref();
        let left_out = left_out.map_or(0, ListedDataset::without_row);
        if left_out > 0 {
            tracing::warn!(
                "{out}: {} left out, because other records or datasets have their residues; combined as Parquet, they have rows",
                plural(left_out, "record"),
            );
        }
        Ok(Exit::Done)
    }

    fn combine(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        // The folder that a link names is replaced, not the link.
        let new = if self.out.is_symlink() {
            let target = self.out.canonicalize();
            target.map_err(StoreError::cannot_create(&self.out))?
        } else {
            self.out.clone()
        };
        check_outside(&new, self.dataset.path())?;
        for dataset in iter::once(&self.dataset).chain(&self.known) {
            let [input, output] = [dataset.path(), &self.out].map(Path::canonicalize);
            if let (Ok(input), Ok(output)) = (input, output)
                && input.starts_with(output)
            {
                let [out, dataset] = [&*self.out, dataset.path()].map(path_text);
                let what = format!("--out {out}: is or contains the dataset {dataset}");
                return Err(Fault::usage(what));
            }
        }
        let opened = self.dataset.open_passed(stop)?;
        let known = self.known.iter().map(|known| known.open_passed(stop));
        let config = CombineConfig {
            out: new,
            rows_per_file: self.rows_per_file.unwrap_or(ROWS_PER_FILE),
            distinct: self.distinct,
            known: known.collect::<Result<_, _>>()?,
            force: self.force,
        };
        let mut progress = None;
        let advance = |rows, all| {
            let start = || ProgressDisplay::start(self.progress, quiet, "rows", all);
            progress.get_or_insert_with(start).advance(rows);
        };
        let outcome = combine(&config, opened, advance, stop);
        if let Some(progress) = progress {
            progress.finish();
        }
        let outcome = outcome?;
        let out = path_text(&self.out);
        if outcome.existing {
            tracing::info!(
                "{out}: already complete: the same parts and options, every file verified"
            );
        } else {
            tracing::info!(
                "{out}: {} of {} in {}; {} copied without decoding",
                plural(outcome.rows, "row"),
                plural(outcome.parts as u64, "part"),
                plural(outcome.files as u64, "file"),
                plural(outcome.copied as u64, "row group"),
            );
        }
        if outcome.aliases_left_out > 0 {
            tracing::info!(
                "{out}: --distinct: {} left out, because other records have their residues",
                plural(outcome.aliases_left_out, "record"),
            );
        }
        if outcome.known_left_out > 0 {
            tracing::warn!(
                "{out}: {} left out, because earlier datasets have their residues: --known adds them",
                plural(outcome.known_left_out, "record"),
            );
        }
        Ok(Exit::Done)
    }
}
