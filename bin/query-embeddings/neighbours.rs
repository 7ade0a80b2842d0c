//! `query-embeddings neighbours`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, variant};
use plmkit_dataset::dataset_folder;
use plmkit_kit::{path_text, plural};
use plmkit_programs::query_embeddings::{HitsArgs, earlier_hits, search};
use plmkit_store::TableFormat;

use crate::{format_of_table, open};

/// Find the nearest proteins of each protein, exactly
///
/// Compares the vectors of all queries with those of all targets, and writes a table with a line for each hit. Products in f32 find the
/// candidates, and f64 decides. The table does not depend on threads, parts or the instructions of the CPU. With the same dataset twice,
/// no protein is a neighbour of itself.
#[derive(Debug, clap::Args)]
pub(crate) struct NeighboursArgs {
    /// Dataset whose proteins are compared: a folder of results, of a sample or of many; dataset.json; or an embeddings file
    #[arg(value_name = "QUERIES", value_parser = file().map(dataset_folder))]
    queries: PathBuf,

    /// Dataset that is searched: its vectors are of the same model, layer, pooling and types
    #[arg(value_name = "TARGETS", value_parser = file().map(dataset_folder))]
    targets: PathBuf,

    /// Table to write; an existing one with the same content is kept
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: PathBuf,

    /// Format of the table [default: by the extension of the file; without one, parquet]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<TableFormat>())]
    format: Option<TableFormat>,

    #[command(flatten)]
    hits: HitsArgs,
}

impl NeighboursArgs {
    pub(crate) fn run(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        let format = format_of_table(self.format, &self.out, TableFormat::Parquet)?;
        let config = self.hits.config(self.out, format)?;
        let (outputs, own) = ([("--out", &*config.out)], [earlier_hits(format)]);
        let open = |dataset| open(dataset, &[], &outputs, &own, stop);
        let [queries, targets] = [open(&self.queries)?, open(&self.targets)?];
        let hits = search(
            &config,
            [&queries, &targets],
            self.hits.progress,
            quiet,
            stop,
        )?;
        tracing::info!("{}: {}", path_text(&config.out), plural(hits, "hit"));
        Ok(Exit::Done)
    }
}
