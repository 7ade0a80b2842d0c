//! The command line.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use clap::{Parser, ValueEnum};
use plmkit_cli::{Common, Fault, Program, file};
use plmkit_sequence::{
    Config, DuplicatePolicy, Input, InvalidPolicy, Limits, LongPolicy, Policy, Target,
};

/// Longest record that is read, in residues.
const MOST_RESIDUES: i64 = 1 << 24;

/// What two windows share unless --overlap says otherwise, in residues.
const OVERLAP: u32 = 256;

/// Cuts FASTA files into shards of proteins
///
/// Every record of the input ends up exactly once: in a shard (shard-00000.parquet, …), or in rejects.csv with the
/// reason. manifest.json is written last and counts everything, also what was changed on the way; where it is, the
/// set is complete.
///
/// The input is read once, and memory does not grow with it but for some 30 to 60 bytes an id. The same input and
/// options give the same bytes whatever the number of threads, and however the input is compressed. A set that is
/// already complete is left alone.
#[derive(Debug, Parser)]
#[command(name = "fasta-shard", version)]
#[command(
    override_usage = "fasta-shard [OPTIONS] --out <DIR> (--shards <N> | --max-shard-tokens <N>) <IN.fasta>..."
)]
pub(crate) struct Args {
    /// FASTA inputs, read in this order; - is standard input
    ///
    /// Plain, gzip, bgzip or zstd: told by the first bytes, whatever the name says. A compressed input that is cut
    /// is an error, never a shorter input.
    #[arg(value_name = "IN.fasta", required = true)]
    inputs: Vec<PathBuf>,

    /// Folder to write the shards, rejects.csv and manifest.json to; made if there is none
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    #[arg(value_parser = file())]
    out: PathBuf,

    /// Name of the sample: the embeddings get a column `sample` with it
    ///
    /// Tables of several samples can then be read as one. The name is letters, digits, _, - and ., the first no - or .
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    #[arg(value_parser = sample)]
    sample: Option<String>,

    /// Replace a set of shards that was made from other input or with other options
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Make N shards of nearly equal numbers of tokens
    ///
    /// For a known number of jobs or GPUs. Each protein goes to the shard with the least so far: any two shards
    /// differ by no more than one protein's tokens. A shard may stay empty.
    #[arg(long, value_name = "N", help_heading = "Shards")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(conflicts_with = "max_shard_tokens")]
    shards: Option<u32>,

    /// Make as many shards as it takes, none with more than N tokens
    ///
    /// For jobs of a known length, as many as there are. Shards are filled one after another in the order of the
    /// input. A protein that alone has more tokens gets a shard of its own.
    #[arg(long, value_name = "N", help_heading = "Shards")]
    #[arg(value_parser = clap::value_parser!(u64).range(3..))]
    max_shard_tokens: Option<u64>,

    /// Longest protein that is embedded as it is, in residues
    ///
    /// ESM-2 was trained on sequences of up to 1022 residues. Time and memory of attention grow with the square of
    /// the length.
    #[arg(
        long,
        value_name = "RESIDUES",
        default_value_t = 1022,
        help_heading = "Long proteins"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_RESIDUES))]
    max_residues: u32,

    /// What happens to a longer protein
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = Long::Truncate, help_heading = "Long proteins")]
    long_policy: Long,

    /// What two neighbouring windows share, in residues (with --long-policy window) [default: 256]
    ///
    /// More gives the residues at a seam more context and costs more tokens.
    #[arg(long, value_name = "RESIDUES", help_heading = "Long proteins")]
    overlap: Option<u32>,

    /// What happens to a record whose id came before
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = Duplicates::Error, help_heading = "Records")]
    duplicate_ids: Duplicates,

    /// What happens to a character that is no residue
    ///
    /// Residues are the twenty, X, B, Z, U and O. Lower case becomes upper case, white space is dropped, and so is
    /// one * at the end of a sequence. Anything else (J, -, ., an inner *, digits) is no residue: ESM-2 has no
    /// meaningful token for it.
    ///
    /// A header without an id stops the run as well, unless the policy is reject.
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = Invalid::Error, help_heading = "Records")]
    invalid: Invalid,

    /// What the letters of the inputs are
    #[arg(long, value_enum, value_name = "ALPHABET", default_value_t = Alphabet::Auto, help_heading = "Records")]
    alphabet: Alphabet,

    /// Shortest protein that is not rejected, in residues
    #[arg(
        long,
        value_name = "RESIDUES",
        default_value_t = 1,
        help_heading = "Records"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_RESIDUES))]
    min_residues: u32,

    /// Threads that compress and write shards [default: all CPUs]
    ///
    /// The shards are the same with any number.
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Long {
    /// Its first --max-residues residues are embedded; the row says so
    Truncate,
    /// It is embedded in overlapping windows of --max-residues, all in one shard, which gpu-embed puts together again
    Window,
    /// It stays whole, in shards of their own (shard-long-00000.parquet, …) that can be packed with their own budget
    SplitOff,
    /// It goes to rejects.csv
    Reject,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Duplicates {
    /// The run stops and names both records
    Error,
    /// The id gets _2, _3, … appended, the first that no record has; renamed.csv lists both. Inputs are read twice
    Suffix,
    /// The id stays; only the ordinal tells the records apart
    Keep,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Invalid {
    /// The run stops and names the record, the position and the character
    Error,
    /// It becomes X, the unknown residue
    X,
    /// The record goes to rejects.csv, and so does one without an id
    Reject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Alphabet {
    /// Residues, unless nearly all letters of most records are A, C, G, T, U or N: then the input is refused
    Auto,
    /// Residues, whichever they are
    Protein,
}

fn sample(name: &str) -> Result<String, &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty()
        || name.len() > 200
        || name.starts_with(['-', '.'])
        || !name.bytes().all(allowed)
    {
        return Err("expected up to 200 letters, digits, _, - and ., the first no - or .");
    }
    Ok(name.to_owned())
}

impl Program for Args {
    const NAME: &'static str = "fasta-shard";

    fn common(&self) -> &Common {
        &self.common
    }
}

impl TryFrom<Args> for Config {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        let inputs: Vec<Input> = args.inputs.into_iter().map(Input::from).collect();
        if inputs
            .iter()
            .filter(|input| **input == Input::Stdin)
            .count()
            > 1
        {
            return Err(Fault::usage(
                "- is given more than once: standard input can be read once",
            ));
        }
        let long = LongPolicy::from(args.long_policy);
        if args.overlap.is_some() && long != LongPolicy::Window {
            return Err(Fault::usage(
                "--overlap is of windows: expected --long-policy window with it",
            ));
        }
        let overlap = args.overlap.unwrap_or(OVERLAP);
        if long == LongPolicy::Window && overlap >= args.max_residues {
            return Err(Fault::usage(format!(
                "--overlap must be less than --max-residues: found {overlap} and {}",
                args.max_residues
            )));
        }
        if long == LongPolicy::Reject && args.min_residues > args.max_residues {
            return Err(Fault::usage(format!(
                "--min-residues is above --max-residues and longer proteins are rejected: none can be accepted, found {} and {}",
                args.min_residues, args.max_residues
            )));
        }
        let shards = args
            .shards
            .and_then(|count| NonZero::new(count as usize))
            .map(Target::Shards);
        let max_tokens = args
            .max_shard_tokens
            .and_then(NonZero::new)
            .map(Target::MaxTokens);
        let Some(target) = shards.or(max_tokens) else {
            return Err(Fault::usage(
                "expected --shards or --max-shard-tokens, found neither",
            ));
        };
        let cpus = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Ok(Self {
            inputs,
            folder: args.out,
            sample: args.sample,
            target,
            policy: Policy {
                invalid: args.invalid.into(),
                min_residues: args.min_residues,
                max_residues: args.max_residues,
                long,
                overlap,
            },
            duplicates: args.duplicate_ids.into(),
            any_alphabet: args.alphabet == Alphabet::Protein,
            limits: Limits::default(),
            threads: args
                .threads
                .and_then(|count| NonZero::new(count.into()))
                .unwrap_or_else(cpus),
            force: args.force,
        })
    }
}

impl From<Long> for LongPolicy {
    fn from(long: Long) -> Self {
        match long {
            Long::Truncate => Self::Truncate,
            Long::Window => Self::Window,
            Long::SplitOff => Self::SplitOff,
            Long::Reject => Self::Reject,
        }
    }
}

impl From<Duplicates> for DuplicatePolicy {
    fn from(duplicates: Duplicates) -> Self {
        match duplicates {
            Duplicates::Error => Self::Error,
            Duplicates::Suffix => Self::Suffix,
            Duplicates::Keep => Self::Keep,
        }
    }
}

impl From<Invalid> for InvalidPolicy {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Error => Self::Error,
            Invalid::X => Self::X,
            Invalid::Reject => Self::Reject,
        }
    }
}
