//! `query-embeddings select`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, variant};
use plmkit_dataset::{RowFormat, RowsConfig, dataset_folder};

use crate::format_of_table;
use crate::ids::AskedArgs;
use crate::rows::write;

/// Write the rows of some proteins to one file, in the order of the input
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("asked").required(true).multiple(true).args(["ids", "fasta", "id"])))]
pub(crate) struct SelectArgs {
    /// Folder of results, of a sample or of many; dataset.json; or an embeddings file
    #[arg(value_name = "DATASET", value_parser = file().map(dataset_folder))]
    dataset: PathBuf,

    #[command(flatten)]
    asked: AskedArgs,

    /// What to write [default: by the extension of --out; without one, parquet]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<RowFormat>())]
    format: Option<RowFormat>,

    /// Column of the vectors for npy, tsv and csv, if several have a vector for each protein
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,

    /// File to write; an existing one of the same rows is verified and kept
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

impl SelectArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let format = format_of_table(self.format, &self.out, RowFormat::Parquet)?;
        let ids = self.asked.read(stop)?;
        let config = RowsConfig {
            format,
            column: self.column.as_deref(),
            ids: Some(&ids),
            out: &self.out,
            force: self.force,
        };
        let files = self.asked.files.paths();
        write(&config, &self.dataset, &files, |_, _| (), stop)?;
        Ok(Exit::Done)
    }
}
