//! `query-embeddings select`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, NamedPath, Stop, file, keep_renameable, variant};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{DatasetFolder, RowFormat, VectorsConfig, select};

use crate::ids::AskedArgs;
use crate::vectors::{self, check_column};
use crate::{format_of_table, keep_dataset, open};

/// Write the rows of some proteins to one file, in the order of the input
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("asked").required(true).multiple(true).args(["ids", "fasta", "id"])))]
pub(crate) struct SelectArgs {
    /// Folder of a sample's results, its dataset.json, or an embeddings file
    #[arg(value_name = "DATASET", value_parser = file().map(DatasetFolder::new))]
    dataset: DatasetFolder,

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
        check_column(format, self.column.as_deref())?;
        let outputs: [NamedPath; 1] = [("--out", &self.out)];
        keep_renameable(&outputs)?;
        let ids = self.asked.read(stop)?;
        let opened = open(&self.dataset, stop)?;
        if format != RowFormat::Parquet {
            let config = VectorsConfig {
                format,
                column: self.column.as_deref(),
                ids: Some((&ids, self.asked.allow_missing)),
                out: &self.out,
                force: self.force,
            };
            vectors::write(&config, &opened, &self.asked.files.paths(), |_| (), stop)?;
            return Ok(Exit::Done);
        }
        keep_dataset(&opened, &self.asked.files.paths(), &outputs, true)?;
        let options = (self.asked.allow_missing, self.force);
        let selected = select(&opened.parts, &ids, &self.out, options, stop);
        let selected = selected.map_err(|error| opened.explain(error, stop))?;
        let out = path_text(&self.out);
        let rows = plural(selected.rows, "row");
        if selected.existing {
            tracing::info!(
                "{out}: already complete: the same rows of the same dataset, {rows} verified"
            );
        } else {
            tracing::info!(
                "{out}: {rows} of {}",
                plural(ids.in_order().len() as u64, "id")
            );
        }
        Ok(Exit::Done)
    }
}
