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

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plmkit_cli::{Common, Fault, Program};
use plmkit_programs::query_embeddings::{format_of, format_of_table, open, open_all, warn};

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
