//! `query-embeddings peptides`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, Stop, file, variant};
use plmkit_dataset::{PlaceFormat, dataset_folder, write_peptides};
use plmkit_kit::{path_text, plural};
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
        let own = match format {
            PlaceFormat::Gff => Replaceable::Lines(None, |_, line| {
                let is_feature =
                    || line.contains("\tplmkit\tORF\t") && line.matches(';').count() == 1;
                line == "##gff-version 3" || is_feature()
            }),
            PlaceFormat::Bed => Replaceable::Lines(None, |_, line| {
                let is_end = line.ends_with("\t0\t+") || line.ends_with("\t0\t-");
                line.split('\t').count() == 6 && is_end
            }),
            PlaceFormat::Fasta => Replaceable::Lines(Some(FileKind::Fasta), |first, line| {
                let is_residues =
                    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_uppercase());
                first.starts_with('>') && (is_residues || is_header(line))
            }),
        };
        let opened = open(
            &self.dataset,
            &self.asked.files.paths(),
            outputs,
            &[own],
            stop,
        )?;
        let ids = ids.resolve(&opened, stop)?;
        let ids = (!ids.in_order().is_empty()).then_some(&ids);
        let written = write_peptides(&opened, ids, format, &self.out, self.force, stop)?;
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

/// Whether a line is the header of a peptide, such as `>k141_1_-2_4_9 k141_1:4-9(-)`.
fn is_header(line: &str) -> bool {
    let parts = line
        .strip_prefix('>')
        .and_then(|header| header.split_once(' '));
    parts.is_some_and(|(id, place)| {
        let contig = place.rsplit_once(':').map_or(place, |(contig, _)| contig);
        let is_end = place.ends_with("(+)") || place.ends_with("(-)");
        is_end
            && id
                .strip_prefix(contig)
                .is_some_and(|rest| rest.starts_with('_'))
    })
}
