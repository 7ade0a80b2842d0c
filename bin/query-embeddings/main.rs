//! `query-embeddings`: reads the parts of a dataset as one table: combines them, selects rows, looks single rows up, finds the
//! nearest rows, scores variants, writes where peptides lie.

mod combine;
mod ids;
mod lookup;
mod neighbours;
mod peptides;
mod select;
mod variants;
mod vectors;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plmkit_cli::{Common, Fault, NamedPath, Program, keep_apart};
use plmkit_dataset::{OpenedDataset, check_outside};

/// Combines the parts of a dataset, selects rows by id, looks single proteins up, finds nearest neighbours, scores variants, and writes
/// peptides as GFF
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
        Some(Command::Combine(combine)) => combine.run(args.common.quiet, stop),
        Some(Command::Select(select)) => select.run(stop),
        Some(Command::Lookup(lookup)) => lookup.run(stop),
        Some(Command::Neighbours(neighbours)) => neighbours.run(args.common.quiet, stop),
        Some(Command::Variants(variants)) => variants.run(stop),
        Some(Command::Peptides(peptides)) => peptides.run(stop),
        None => Err(Fault::usage(
            "expected a command: combine, select, lookup, neighbours, variants or peptides; see --help",
        )),
    })
}

/// Checks that no output is a file of the dataset, among its files, or one of `others`.
fn keep_dataset(
    dataset: &OpenedDataset,
    others: &[NamedPath],
    outputs: &[NamedPath],
) -> Result<(), Fault> {
    let files = dataset.files();
    let files = files.iter().map(|file| ("the dataset", file.as_path()));
    let inputs: Vec<NamedPath> = files.chain(others.iter().copied()).collect();
    keep_apart(&inputs, outputs)?;
    for (_, output) in outputs {
        check_outside(output, dataset.folder.path())?;
    }
    Ok(())
}
