//! `query-embeddings variants`.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, print};
use plmkit_contract::plural;
use plmkit_dataset::{Sites, Variant, dataset_folder};
use plmkit_store::{IdValue, read_id_values};

use crate::open;

/// Print the scores of variants: the log-probabilities of the mutant residues less those of the wild type, summed
///
/// The embeddings have scores of `gpu-embed --scores`. A score above 0 means that the model prefers the mutant. The wild-type residues
/// must be those of the protein (65). A residue that was not embedded or not masked, or is none of the twenty amino acids, leaves its
/// variant without a score. A line on standard error says whether scores are wild-type or masked marginals.
#[derive(Debug, clap::Args)]
pub(crate) struct VariantsArgs {
    /// Folder of results with its shards, of a sample or of many; or dataset.json
    #[arg(value_name = "DATASET", value_parser = file().map(dataset_folder))]
    dataset: PathBuf,

    /// CSV with the columns `id` and `variant`, such as A123V, or several joined by colons
    #[arg(value_name = "VARIANTS.csv", value_parser = file())]
    variants: PathBuf,
}

impl VariantsArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let lines = self.read()?;
        let opened = open(&self.dataset, &[], (&[], None), stop)?;
        let mut sites = Sites::default();
        for (line, variant) in &lines {
            sites.ask(&line.id, variant);
        }
        sites.read(&opened, stop)?;
        let mut out = csv::Writer::from_writer(Vec::new());
        let mut unscored = 0_u64;
        let written = |error: csv::Error| Fault::new(Exit::Internal, error.to_string());
        out.write_record(["id", "variant", "score"])
            .map_err(written)?;
        for (line, variant) in &lines {
            let score = sites.score(&line.id, variant);
            let score = score.map_err(|what| line.error(&self.variants, what))?;
            unscored += u64::from(score.is_none());
            let score = score.map_or(String::new(), |score| (score as f32).to_string());
            out.write_record([&line.id, &line.value, &score])
                .map_err(written)?;
        }
        let mut text = out.into_inner().unwrap_or_default();
        let _ = text.flush();
        print(text)?;
        if let Some(how) = opened.scores() {
            tracing::info!("scores are {how} marginals");
        }
        if unscored > 0 {
            let variants = plural(unscored, "variant");
            tracing::warn!(
                "{variants} without a score: a residue was not embedded or not masked, or is none of the twenty amino acids"
            );
        }
        Ok(Exit::Done)
    }

    /// Reads the file of variants.
    fn read(&self) -> Result<Vec<(IdValue, Variant)>, Fault> {
        let lines = read_id_values(&self.variants, "variant")?;
        let lines = lines.into_iter().map(|line| {
            let variant = line.value.parse();
            let variant = variant.map_err(|what: &str| line.error(&self.variants, what))?;
            Ok((line, variant))
        });
        lines.collect()
    }
}
