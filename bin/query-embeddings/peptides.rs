//! `query-embeddings peptides`.

use std::path::PathBuf;
use std::str::Lines;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, variant};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{PlaceFormat, dataset_folder, write_peptides};
use plmkit_store::{FileKind, Replaceable};

use crate::ids::AskedArgs;
use crate::{format_of_table, open};

/// Write where the peptides of contigs lie, as GFF3 or BED, or their residues as FASTA; of `fasta-shard --translate`
///
/// Peptides that were rejected are left out. All others have a line or record each, in the order of the input: those that share the vectors of
/// another record, by `--dedup` or `--known`, too. Without ids, all are written.
#[derive(Debug, clap::Args)]
pub(crate) struct PeptidesArgs {
    /// Folder of results with its shards, of a sample or of many; or dataset.json
    #[arg(value_name = "DATASET", value_parser = file().map(dataset_folder))]
    dataset: PathBuf,

    #[command(flatten)]
    asked: AskedArgs,

    /// Format of the file [default: by the extension of the file; without one, gff]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<PlaceFormat>())]
    format: Option<PlaceFormat>,

    /// File to write; an existing one with the same content is kept
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

impl PeptidesArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let format = format_of_table(self.format, &self.out, PlaceFormat::Gff)?;
        let ids = self.asked.read(stop)?;
        let outputs = &[("--out", &*self.out)];
        // Each line of these is one of plmkit's; of BED, the strand is the last of six columns.
        let own = match format {
            PlaceFormat::Gff => Replaceable::Like(None, |text| {
                let mut lines = lines(text).filter(|line| !line.starts_with('#'));
                lines.all(|line| line.contains("\tplmkit\tORF\t"))
            }),
            PlaceFormat::Bed => Replaceable::Like(None, |text| {
                lines(text).all(|line| line.split('\t').count() == 6 && line.ends_with(['+', '-']))
            }),
            PlaceFormat::Fasta => Replaceable::Like(Some(FileKind::Fasta), |text| {
                let mut headers = lines(text).filter(|line| line.starts_with('>'));
                headers.all(|line| line.ends_with("(+)") || line.ends_with("(-)"))
            }),
        };
        let opened = open(
            &self.dataset,
            &self.asked.files.paths(),
            (outputs, own),
            stop,
        )?;
        let ids = ids.resolve(&opened, stop)?;
        let ids = (!ids.in_order().is_empty()).then_some(&ids);
        let written = write_peptides(&opened, ids, (format, &self.out, self.force), stop)?;
        let ([written, left_out], out) = (written, path_text(&self.out));
        if left_out > 0 {
            tracing::warn!(
                "{out}: {} left out, because earlier datasets have their residues",
                plural(left_out, "peptide")
            );
        }
        tracing::info!("{out}: {}", plural(written, "peptide"));
        Ok(Exit::Done)
    }
}

/// The lines of a text; of other bytes, one that is nobody's.
fn lines(text: &[u8]) -> Lines<'_> {
    str::from_utf8(text).unwrap_or(">").lines()
}
