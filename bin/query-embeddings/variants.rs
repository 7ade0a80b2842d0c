//! `query-embeddings variants`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file};
use plmkit_dataset::{AskedIds, Sites, dataset_folder};
use plmkit_programs::variants::{EARLIER, TableArgs};

use crate::open;

/// Write a table of variants with their scores: the log-probabilities of the mutant residues less those of the wild type, summed
///
/// The embeddings have scores of `gpu-embed --scores`. A score above 0 means that the model prefers the mutant. All columns and lines
/// stay, and each line gets a score or a reason. Wrong lines are counted (exit code 1). A line on standard error says whether scores are
/// wild-type or masked marginals. `plmkit variants` computes the scores of a FASTA file.
#[derive(Debug, clap::Args)]
pub(crate) struct VariantsArgs {
    /// Folder of results with its shards, of a sample or of many; or dataset.json
    #[arg(value_name = "DATASET", value_parser = file().map(dataset_folder))]
    dataset: PathBuf,

    /// CSV or TSV with a column of variants, such as A123V, p.Ala123Val or A123V:K5R, and one of ids; - is standard input
    #[arg(value_name = "TABLE")]
    path: PathBuf,

    #[command(flatten)]
    table: TableArgs,
}

impl VariantsArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let mut table = self.table.read(&self.path, None, stop)?;
        let outputs = self.table.outputs();
        let inputs = [("the table", &*self.path)];
        let opened = open(&self.dataset, &inputs, &outputs, &[EARLIER], stop)?;
        let out = self.table.output(&table)?;
        let mut ids = AskedIds::default();
        table.ids().for_each(|id| ids.add(id));
        table.name(&ids.named(&opened, stop)?);
        let mut sites = Sites::default();
        sites.ask(&table);
        sites.read(&opened, stop)?;
        let exit = self
            .table
            .write(out, (&self.path, &table), &sites, Exit::Done)?;
        if let Some(how) = opened.scores() {
            tracing::info!("scores are {how} marginals");
        }
        Ok(exit)
    }
}
