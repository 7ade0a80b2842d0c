//! `query-embeddings variants`.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, print};
use plmkit_contract::{Quoted, path_text, plural};
use plmkit_dataset::{DatasetFolder, Sites, Variant};
use plmkit_store::StoreError;

use crate::open;

/// Print the scores of variants: the log-probabilities of the mutant residues less those of the wild type, summed
///
/// The embeddings have scores of `gpu-embed --scores`. A score above 0 means that the model prefers the mutant. The wild-type residues
/// must be those of the protein (65). A residue that was not embedded, or is none of the twenty amino acids, leaves its variant without
/// a score.
#[derive(Debug, clap::Args)]
pub(crate) struct VariantsArgs {
    /// Folder of a sample's results with its shards, or its dataset.json
    #[arg(value_name = "DATASET", value_parser = file().map(DatasetFolder::new))]
    dataset: DatasetFolder,

    /// CSV with the columns `id` and `variant`, such as A123V, or several joined by colons
    #[arg(value_name = "VARIANTS.csv", value_parser = file())]
    variants: PathBuf,
}

/// A line of the file.
struct Line {
    number: u64,
    id: String,
    text: String,
    variant: Variant,
}

impl VariantsArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let lines = self.read()?;
        let opened = open(&self.dataset, stop)?;
        let mut sites = Sites::default();
        for line in &lines {
            sites.ask(&line.id, &line.variant);
        }
        let read = sites.read(&opened, stop);
        read.map_err(|error| opened.explain(error, stop))?;
        let mut out = csv::Writer::from_writer(Vec::new());
        let mut unscored = 0_u64;
        let written = |error: csv::Error| Fault::new(Exit::Internal, error.to_string());
        out.write_record(["id", "variant", "score"])
            .map_err(written)?;
        for line in &lines {
            let score = sites.score(&line.id, &line.variant);
            let score = score.map_err(|what| self.bad(line.number, &line.id, &line.text, &what))?;
            unscored += u64::from(score.is_none());
            let score = score.map_or(String::new(), |score| (score as f32).to_string());
            out.write_record([&line.id, &line.text, &score])
                .map_err(written)?;
        }
        let mut text = out.into_inner().unwrap_or_default();
        let _ = text.flush();
        print(text)?;
        if unscored > 0 {
            let variants = plural(unscored, "variant");
            tracing::warn!(
                "{variants} without a score: a residue was not embedded, or is none of the twenty amino acids"
            );
        }
        Ok(Exit::Done)
    }

    /// Reads the file of variants.
    fn read(&self) -> Result<Vec<Line>, Fault> {
        let path = &self.variants;
        let name = path_text(path);
        let bad = |what: String| Fault::new(Exit::Data, format!("{name}: {what}"));
        let opened = std::fs::File::open(path).map_err(StoreError::cannot_open(path))?;
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(opened);
        let header = reader.headers().map_err(|error| bad(error.to_string()))?;
        let place = |column: &str| {
            let found = header
                .iter()
                .position(|name| name.trim_start_matches('\u{feff}') == column);
            let names = header.iter().collect::<Vec<_>>().join(",");
            found.ok_or_else(|| {
                bad(format!(
                    "expected the columns id and variant, found '{names}'"
                ))
            })
        };
        let (id, variant) = (place("id")?, place("variant")?);
        let mut lines = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| bad(error.to_string()))?;
            let number = record.position().map_or(0, csv::Position::line);
            let (id, text) = (record[id].to_owned(), record[variant].to_owned());
            let variant = text.parse();
            let variant = variant.map_err(|what| self.bad(number, &id, &text, what))?;
            lines.push(Line {
                number,
                id,
                text,
                variant,
            });
        }
        Ok(lines)
    }

    fn bad(&self, number: u64, id: &str, text: &str, what: &str) -> Fault {
        let (name, id) = (path_text(&self.variants), Quoted(id));
        Fault::new(
            Exit::Data,
            format!("{name}: line {number} {id} {}: {what}", Quoted(text)),
        )
    }
}
