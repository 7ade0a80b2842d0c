//! `query-embeddings`: reads the parts of a dataset as one table: lists them once they are verified, combines them, selects rows, looks single rows up, finds the
//! nearest rows, scores variants, writes where peptides lie.

mod combine;
mod files;
mod ids;
mod lookup;
mod neighbours;
mod peptides;
mod rows;
mod select;
mod variants;

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, Subcommand};
use plmkit_cli::{Common, Fault, NamedPath, Program, Stop, keep_apart, keep_data, keep_renameable};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{Dataset, DatasetError, check_outside, has_shards};

/// Lists embeddings files once they are verified, combines the parts of a dataset, selects rows by id, looks single proteins up, finds nearest neighbours, scores variants, and writes
/// peptides as GFF, BED or FASTA
///
/// DATASET is a sample's folder of results, or the folder of the results of many samples: these are one table.
#[derive(Debug, Parser)]
#[command(name = "query-embeddings", version)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    Files(files::FilesArgs),
    Combine(combine::CombineArgs),
    Select(select::SelectArgs),
    Lookup(lookup::LookupArgs),
    Neighbours(neighbours::NeighboursArgs),
    Variants(variants::VariantsArgs),
    Peptides(peptides::PeptidesArgs),
}

impl Program for Args {
    const NAME: &'static str = "query-embeddings";

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    plmkit_cli::main(|args: Args, stop| match args.command {
        Some(Command::Files(files)) => files.run(stop),
        Some(Command::Combine(combine)) => combine.run(args.common.quiet, stop),
        Some(Command::Select(select)) => select.run(stop),
        Some(Command::Lookup(lookup)) => lookup.run(stop),
        Some(Command::Neighbours(neighbours)) => neighbours.run(args.common.quiet, stop),
        Some(Command::Variants(variants)) => variants.run(stop),
        Some(Command::Peptides(peptides)) => peptides.run(stop),
        None => Err(Fault::usage(
            "expected a command: files, combine, select, lookup, neighbours, variants or peptides; see --help",
        )),
    })
}

/// Opens a dataset whose validation has passed, or those of the samples in a folder of results, of which no file is an output. No output is one of the other `inputs`, or replaces
/// data but those that begin or end with the same `magic`.
fn open(
    dataset: &Path,
    inputs: &[NamedPath],
    (outputs, magic): (&[NamedPath], Option<&[u8]>),
    stop: &Stop,
) -> Result<Dataset, Fault> {
    keep_renameable(outputs)?;
    let opened = open_all(dataset, Err, stop)?;
    let files = opened.files();
    let files = files.iter().map(|file| ("the dataset", file.as_path()));
    let inputs: Vec<NamedPath> = files.chain(inputs.iter().copied()).collect();
    keep_apart(&inputs, outputs)?;
    for (_, output) in outputs {
        let mut samples = opened.samples().iter();
        samples.try_for_each(|sample| check_outside(output, &sample.path))?;
    }
    keep_data(outputs, magic)?;
    Ok(opened)
}

/// Tells what is wrong with a sample in a folder of results.
fn warn(path: &Path, what: &str) {
    tracing::warn!("{}: {what}", path_text(path));
}

/// Opens a dataset, or the samples in a folder of results. If a dataset has shards, but no validation yet, that is told: rows may be
/// missing.
fn open_all(
    dataset: &Path,
    on_failed: impl FnOnce(DatasetError) -> Result<(), DatasetError>,
    stop: &Stop,
) -> Result<Dataset, Fault> {
    let opened = Dataset::open_all(dataset, on_failed, warn, stop)?;
    if opened.listed.is_none() && has_shards(&opened.path) {
        tracing::warn!(
            "{}: not validated, so rows may be missing or wrong: found {}",
            path_text(&opened.path),
            plural(opened.rows(), "row")
        );
    }
    Ok(opened)
}

/// Returns the format of a file: the given one, or that which its extension names, if it names one.
fn format_of<T: FromStr>(given: Option<T>, file: &Path) -> Option<T> {
    given.or_else(|| file.extension()?.to_str()?.parse().ok())
}

/// Returns the format of a table. Without an extension, it is the `default`.
fn format_of_table<T: FromStr>(given: Option<T>, file: &Path, default: T) -> Result<T, Fault> {
    match format_of(given, file) {
        None if file.extension().is_some() => {
            let what = "its name ends with no known format: expected another name, or --format";
            Err(Fault::usage(format!("--out {}: {what}", path_text(file))))
        }
        format => Ok(format.unwrap_or(default)),
    }
}
