//! `query-embeddings combine`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, ProgressMode, Stop, file, variant};
use plmkit_contract::ListedDataset;
use plmkit_dataset::{
    CombineConfig, Dataset, RowFormat, RowsConfig, check_outside, combine, dataset_folder,
};
use plmkit_kit::{path_text, plural};
use plmkit_programs::query_embeddings::rows_shown;
use plmkit_store::StoreError;

use crate::rows::{check_column, write};
use crate::{format_of, warn};

/// Combine the parts of a dataset, or several samples, into few large files; or write the vectors in another format
///
/// The rows are those of the parts, bit by bit, in the order of the input. The new folder appears when it is complete, with a
/// dataset.json of its own: all readers use it without shards.
/// Memory stays below 1 GB whatever the number of rows and parts. Several datasets become one, whose column `sample` tells them apart:
/// their rows follow each other in the order given, with ordinals of their own.
#[derive(Debug, clap::Args)]
pub(crate) struct CombineArgs {
    /// Folder of results, of a sample or of many, or dataset.json; the validation has passed. For npy, tsv and csv, an embeddings file as well
    #[arg(value_name = "DATASET", required = true, value_parser = file().map(dataset_folder))]
    datasets: Vec<PathBuf>,

    /// What to write [default: by the name at --out, or parquet]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<RowFormat>())]
    format: Option<RowFormat>,

    /// Column of the vectors for npy, tsv and csv, if several have a vector for each protein
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,

    /// Folder to write: embeddings/part-00000.parquet …, dataset.json, and rejects/ where there are any
    ///
    /// An existing folder of the same parts and options is verified and kept; any other is refused. For npy, tsv and csv, the file to
    /// write; beside a matrix, NAME.ids.txt has the id of each row.
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
    #[arg(long, value_name = "DATASET", num_args = 1.., value_parser = file().map(dataset_folder))]
    known: Vec<PathBuf>,

    /// Replace another combined dataset or file at --out
    #[arg(long)]
    force: bool,

    /// How progress is shown on standard error
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    progress: ProgressMode,
}

/// Rows of a Parquet file, if nothing else is asked for.
const ROWS_PER_FILE: NonZero<u64> = NonZero::new(1_000_000).unwrap();

impl CombineArgs {
    pub(crate) fn run(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        let format = format_of(self.format, &self.out).unwrap_or(RowFormat::Parquet);
        check_column(format, self.column.as_deref())?;
        match format {
            RowFormat::Parquet => self.combine(quiet, stop),
            _ => self.write_vectors(format, quiet, stop),
        }
    }

    fn write_vectors(self, format: RowFormat, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        let [dataset] = &self.datasets[..] else {
            let what = "--format: expected one dataset with npy, tsv or csv; combine several as Parquet first";
            return Err(Fault::usage(what));
        };
        if self.distinct || !self.known.is_empty() || self.rows_per_file.is_some() {
            let what = "--format: expected neither --distinct, --known nor --rows-per-file with npy, tsv or csv; combine the dataset first";
            return Err(Fault::usage(what));
        }
        let config = RowsConfig {
            format,
            column: self.column.as_deref(),
            ids: None,
            out: &self.out,
            force: self.force,
        };
        let shown = rows_shown(self.progress, quiet);
        let written = write(&config, dataset, &[], shown, stop)?;
        let listed = written
            .samples()
            .iter()
            .filter_map(|sample| sample.listed.as_ref());
        let left_out: u64 = listed.map(ListedDataset::without_row).sum();
        if left_out > 0 {
            tracing::warn!(
                "{}: {} left out, because other records or datasets have their residues; combined as Parquet, they have rows",
                path_text(&self.out),
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
        for dataset in &self.datasets {
            check_outside(&new, dataset)?;
        }
        for dataset in self.datasets.iter().chain(&self.known) {
            let [input, output] = [dataset, &self.out].map(|path| path.canonicalize());
            if let (Ok(input), Ok(output)) = (input, output)
                && input.starts_with(output)
            {
                let [out, dataset] = [&self.out, dataset].map(|path| path_text(path));
                let what = format!("--out {out}: is or contains the dataset {dataset}");
                return Err(Fault::usage(what));
            }
        }
        let mut opened = Vec::new();
        for path in &self.datasets {
            opened.extend(Dataset::open_all(path, Err, warn, stop)?.into_samples());
        }
        let known = self.known.iter();
        let known = known.map(|path| Dataset::open(path, Err, stop));
        let config = CombineConfig {
            out: new,
            rows_per_file: self.rows_per_file.unwrap_or(ROWS_PER_FILE),
            distinct: self.distinct,
            known: known.collect::<Result<_, _>>()?,
            force: self.force,
        };
        let outcome = combine(&config, opened, rows_shown(self.progress, quiet), stop)?;
        let out = path_text(&self.out);
        if outcome.existing {
            tracing::info!(
                "{out}: already complete: the same parts and options, every file verified"
            );
        } else {
            tracing::info!(
                "{out}: {} of {} in {}",
                plural(outcome.rows, "row"),
                plural(outcome.parts as u64, "part"),
                plural(outcome.files as u64, "file"),
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
