//! The command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use clap::{Parser, ValueEnum};
use plmkit_cli::{
    Common, Exit, Fault, Given, NamedPath, Program, default_threads, ensure_distinct, file, variant,
};
use plmkit_contract::{DATASET_FILE, is_sample_name};
use plmkit_dataset::{SUMMARY_FILE, dataset_folder};
use plmkit_sequence::{
    DuplicatePolicy, InvalidPolicy, LongPolicy, OrfBetween, Policy, STANDARD_CODE, ShardConfig,
    ShardLimit, ShardOptions, ShardTarget, StopPolicy, Translation, check_work, genetic_code,
};

/// The longest readable record, in residues.
const MOST_RESIDUES: i64 = 1 << 24;

/// Default of --min-residues with --translate. So long is the shortest gene of common gene finders.
const LEAST_PEPTIDE: u32 = 30;

/// Cut FASTA files into shards of proteins
///
/// Every record of the input is written exactly once: to a shard (shard-00000.parquet, …), or to rejects.csv with a
/// reason; with --dedup or --known perhaps to aliases.parquet or known.parquet. manifest.json counts records, rejects and changes. It is written last: a folder with manifest.json holds a
/// complete set.
///
/// fasta-shard reads the input once. Memory grows by at most 24 bytes for each id (48 with --duplicate-ids drop-identical), with --dedup also for each distinct
/// sequence, with --known for each row of the dataset. The same
/// input and options give the same bytes with any number of threads and any compression. A complete set is kept as it
/// is.
#[derive(Clone, Debug, Parser)]
#[command(name = "fasta-shard", version)]
#[command(
    override_usage = "fasta-shard [OPTIONS] --out <DIR> (--shards <N> | --max-shard-tokens <N>) <IN.fasta>..."
)]
pub struct Args {
    /// FASTA inputs, in this order; - is standard input
    ///
    /// Inputs are plain, gzip, bgzip or zstd. The first bytes of an input decide, not its name. A truncated compressed
    /// input is an error.
    #[arg(value_name = "IN.fasta", required = true)]
    pub inputs: Vec<PathBuf>,

    /// Folder for the shards, rejects.csv and manifest.json; it is created if it does not exist
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    #[arg(value_parser = file())]
    pub out: PathBuf,

    /// Name of the sample, which becomes the column `sample` of the embeddings
    ///
    /// The column tells the samples of a joint table apart. A name has letters, digits, _, - and ., and does not begin
    /// with - or .
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    #[arg(value_parser = sample)]
    pub sample: Option<String>,

    /// Overwrite an existing set of shards
    #[arg(long, help_heading = "Output")]
    pub force: bool,

    /// Accept inputs without a record: the set has no protein
    #[arg(long, help_heading = "Output")]
    pub allow_empty: bool,

    /// Make N shards with nearly equal numbers of tokens
    ///
    /// Use it for a fixed number of jobs or GPUs. Each protein goes to the shard with the fewest tokens, so that two
    /// shards differ by at most the tokens of one protein. A shard may stay empty.
    #[arg(long, value_name = "N", help_heading = "Shards")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000).try_map(NonZero::try_from))]
    #[arg(conflicts_with = "max_shard_tokens")]
    pub shards: Option<NonZero<u32>>,

    /// Make as many shards as necessary, each with at most N tokens
    ///
    /// Use it for jobs of a fixed length. Shards are filled one after another in input order. A protein with more than
    /// N tokens gets its own shard. With N+M, each shard may have M tokens more than the shard before it.
    #[arg(long, value_name = "N", help_heading = "Shards")]
    pub max_shard_tokens: Option<ShardLimit>,

    #[command(flatten)]
    pub options: Given<Options>,

    /// Number of threads that parse records, digest and compress them; one more decompresses input [default: the CPUs
    /// that this process may use, at most `SLURM_CPUS_PER_TASK`]
    ///
    /// The number of threads does not change the shards.
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024).try_map(NonZero::try_from))]
    pub threads: Option<NonZero<u16>>,

    #[command(flatten)]
    pub common: Common,
}

/// The options that decide which proteins are embedded.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    pub records: RecordOptions,

    #[command(flatten)]
    pub long: LongOptions,

    /// Embed records with the same residues once
    ///
    /// A record whose residues equal those of an earlier accepted record is in no shard, but in aliases.parquet, with the
    /// ordinal of that record. Residues are compared whole, after lower case, white space and a terminal * are treated.
    #[arg(long, help_heading = "Duplicates")]
    pub dedup: bool,

    /// Leave out the sequences of an earlier dataset: the folder of a sample's results, or its dataset.json
    ///
    /// Repeat the option for several datasets. A record whose embedded residues such a dataset has is in no shard, but in
    /// known.parquet, with the ordinal of that row. The validation of the dataset must have passed. Of its embeddings only
    /// ordinals and sequence digests are read. --max-residues, --long-policy and --overlap must be those of the dataset,
    /// and gpu-embed must make the new embeddings with the same model, types and columns.
    #[arg(long, value_name = "DATASET", help_heading = "Duplicates")]
    #[arg(value_parser = file().map(dataset_folder))]
    pub known: Vec<PathBuf>,
}

/// The options that decide what becomes of long proteins.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct LongOptions {
    /// Longest protein that is embedded whole, in residues
    ///
    /// ESM-2 was trained on sequences of up to 1022 residues. The time of attention grows with the square of the
    /// length.
    #[arg(
        long,
        value_name = "RESIDUES",
        default_value_t = Policy::MAX_RESIDUES,
        help_heading = "Long proteins"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_RESIDUES))]
    pub max_residues: u32,

    /// How to treat a longer protein
    #[arg(long, value_parser = variant::<LongPolicy>(), value_name = "POLICY", default_value_t = LongPolicy::Truncate, help_heading = "Long proteins")]
    pub long_policy: LongPolicy,

    /// Overlap of two neighbouring windows, in residues (with --long-policy window) [default: 256]
    ///
    /// A larger overlap gives residues at the seams more context and costs more tokens.
    #[arg(long, value_name = "RESIDUES", help_heading = "Long proteins")]
    pub overlap: Option<u32>,
}

/// The options that decide what is read of a record, and what becomes of it.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct RecordOptions {
    /// Translate contigs (DNA or RNA) into the proteins of the shards
    ///
    /// Each peptide is a record with the id `CONTIG_FRAME_START_END` and the description of its contig. FRAME is 1, 2, 3, -1,
    /// -2 or -3, as EMBOSS transeq numbers frames. START and END are its leftmost and rightmost base on the contig,
    /// counted from 1. A contig without a peptide of --min-residues is listed in rejects.csv with the reason `no_orf`.
    ///
    /// Memory grows with the longest contig: a byte a base, up to two for its peptides, and 32 a peptide.
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Translation")]
    pub translate: Option<Translate>,

    /// Number of the genetic code in NCBI's table: 1 to 6, 9 to 16, 21 to 33 [default: 1]
    ///
    /// 1 is the standard code, 4 that of Mycoplasma, 11 that of bacteria, archaea and plastids. 11 differs from 1 only in
    /// its start codons.
    #[arg(long, value_parser = genetic_code, value_name = "N", help_heading = "Translation")]
    #[arg(requires = "translate")]
    pub genetic_code: Option<u8>,

    /// How to treat a stop codon inside a frame (with --translate six-frame) [default: split]
    #[arg(long, value_parser = variant::<StopPolicy>(), value_name = "POLICY", help_heading = "Translation")]
    pub stops: Option<StopPolicy>,

    /// What begins and ends a reading frame (with --translate orf) [default: stops]
    #[arg(long, value_parser = variant::<OrfBetween>(), value_name = "CODONS", help_heading = "Translation")]
    pub orf_between: Option<OrfBetween>,

    /// How to treat a record with the id of an earlier record
    #[arg(long, value_parser = variant::<DuplicatePolicy>(), value_name = "POLICY", default_value_t = DuplicatePolicy::Error, help_heading = "Records")]
    pub duplicate_ids: DuplicatePolicy,

    /// How to treat a character that is not a residue
    ///
    /// Residues are the twenty amino acids, X, B, Z, U and O. Lower case becomes upper case. One * at the end of a sequence
    /// is dropped. ESM-2 has no meaningful token for anything else (J, -, ., an inner *, digits).
    ///
    /// A header without an id also stops the run, unless the policy is reject. Text among the residues, control bytes and
    /// bytes that are not ASCII stop it under every policy.
    #[arg(long, value_parser = variant::<InvalidPolicy>(), value_name = "POLICY", default_value_t = InvalidPolicy::Error, help_heading = "Records")]
    pub invalid: InvalidPolicy,

    /// Take every letter of sequence lines as a residue, wherever blanks are
    ///
    /// By default, blanks may only divide the residues of a record into blocks of ten, or into single residues. Any other
    /// blank stops the run, as it may be that of text: of a header on two lines, or the message of a server.
    #[arg(long, help_heading = "Records")]
    pub drop_blanks: bool,

    /// Read PIR: after a header such as >P1;ID, the next line is the title, and becomes the description
    #[arg(long, help_heading = "Records")]
    pub pir: bool,

    /// How to read the letters of the inputs
    #[arg(long, value_enum, value_name = "ALPHABET", default_value_t = Alphabet::Auto, help_heading = "Records")]
    pub alphabet: Alphabet,

    /// Shortest protein that is accepted, in residues [default: 1; with --translate 30]
    ///
    /// Shorter proteins are listed in rejects.csv. Shorter peptides of contigs are only counted.
    #[arg(long, value_name = "RESIDUES", help_heading = "Records")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_RESIDUES))]
    pub min_residues: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Alphabet {
    /// As residues; refuse an input if nearly all letters of most records are A, C, G, T, U or N. With --translate as bases;
    /// refuse an input otherwise
    Auto,
    /// As residues, without that check
    Protein,
    /// As bases, without the check that most records are nearly all A, C, G, T, U or N (with --translate)
    Nucleotide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Translate {
    /// All six reading frames, whole or split at stop codons
    SixFrame,
    /// Open reading frames, as EMBOSS getorf finds them
    Orf,
}

fn sample(name: &str) -> Result<String, &'static str> {
    if !is_sample_name(name) {
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

impl Args {
    /// The command line without inputs: they are named later, as is the number of shards.
    pub fn new(
        out: PathBuf,
        options: Given<Options>,
        threads: Option<NonZero<u16>>,
        common: Common,
    ) -> Self {
        Self {
            inputs: Vec::new(),
            out,
            sample: None,
            force: false,
            allow_empty: false,
            shards: None,
            max_shard_tokens: None,
            options,
            threads,
            common,
        }
    }
}

/// Checks what can be refused before an input is read: options, known datasets, and other shards in the folder.
///
/// # Errors
/// It is refused.
pub fn check(args: &Args) -> Result<(), Fault> {
    Ok(check_work(&ShardConfig::try_from(args.clone())?)?)
}

/// Checks the options of a translation.
fn translation(args: &RecordOptions) -> Result<Option<Translation>, Fault> {
    let (how, alphabet) = (args.translate, args.alphabet);
    if args.stops.is_some() && how != Some(Translate::SixFrame) {
        return Err(Fault::usage(
            "--stops is of whole frames: expected --translate six-frame with it",
        ));
    }
    if args.orf_between.is_some() && how != Some(Translate::Orf) {
        return Err(Fault::usage(
            "--orf-between is of open reading frames: expected --translate orf with it",
        ));
    }
    if how.is_none() && alphabet == Alphabet::Nucleotide {
        return Err(Fault::usage(
            "--alphabet nucleotide is of contigs: expected --translate with it",
        ));
    }
    if how.is_some() && alphabet == Alphabet::Protein {
        return Err(Fault::usage(
            "--translate expects contigs: found --alphabet protein",
        ));
    }
    let genetic_code = args.genetic_code.unwrap_or(STANDARD_CODE);
    Ok(how.map(|how| match how {
        Translate::SixFrame => Translation::SixFrame {
            stops: args.stops.unwrap_or(StopPolicy::Split),
            genetic_code,
        },
        Translate::Orf => Translation::Orf {
            orf_between: args.orf_between.unwrap_or(OrfBetween::Stops),
            genetic_code,
        },
    }))
}

/// Checks that the set replaces no file of a known dataset, and no input that is named like an unfinished file of it.
fn check_paths(args: &Args) -> Result<(), Fault> {
    // That no input is a file of the set is checked with the folder.
    let inputs = args
        .inputs
        .iter()
        .filter(|path| !path.ends_with("manifest.json"));
    let inputs = inputs.map(|path| ("an input", path.as_path()));
    let is_above =
        |path: &&PathBuf| !path.join(DATASET_FILE).exists() && path.join(SUMMARY_FILE).exists();
    if let Some(results) = args.options.known.iter().find(is_above) {
        let what = "--known: a folder of results, expected that of a sample in it";
        return Err(Fault::of_path(Exit::NoInput, results, what));
    }
    let known = args.options.known.iter();
    let known = known.map(|path| ("--known", path.as_path()));
    let inputs: Vec<NamedPath> = inputs.chain(known).collect();
    ensure_distinct(&inputs, &[("--out", &args.out.join("manifest.json"))])
}

impl TryFrom<Args> for ShardConfig {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        let (records, long_args) = (&args.options.records, &args.options.long);
        let translation = translation(records)?;
        check_paths(&args)?;
        let stdin = args.inputs.iter().filter(|input| *input == Path::new("-"));
        if stdin.count() > 1 {
            return Err(Fault::usage(
                "- is given more than once: standard input can be read once",
            ));
        }
        let least = translation.map_or(1, |_| LEAST_PEPTIDE);
        let min_residues = records.min_residues.unwrap_or(least);
        let (long, max_residues) = (long_args.long_policy, long_args.max_residues);
        if long_args.overlap.is_some() && long != LongPolicy::Window {
            return Err(Fault::usage(
                "--overlap is of windows: expected --long-policy window with it",
            ));
        }
        let overlap =
            (long == LongPolicy::Window).then(|| long_args.overlap.unwrap_or(Policy::OVERLAP));
        if let Some(overlap) = overlap
            && overlap >= max_residues
        {
            return Err(Fault::usage(format!(
                "--overlap must be less than --max-residues: found {overlap} and {max_residues}"
            )));
        }
        if long == LongPolicy::Reject && min_residues > max_residues {
            return Err(Fault::usage(format!(
                "--min-residues is above --max-residues and longer proteins are rejected: none can be accepted, found {min_residues} and {max_residues}"
            )));
        }
        let target = match (args.shards, args.max_shard_tokens) {
            (Some(count), _) => ShardTarget::Shards(count),
            (None, Some(tokens)) => ShardTarget::MaxTokens(tokens),
            (None, None) => {
                return Err(Fault::usage(
                    "expected --shards or --max-shard-tokens, found neither",
                ));
            }
        };
        let any_alphabet = records.alphabet != Alphabet::Auto;
        Ok(Self {
            inputs: args.inputs,
            folder: args.out,
            options: ShardOptions {
                sample: args.sample,
                target,
                translation,
                policy: Policy {
                    invalid: records.invalid,
                    min_residues,
                    max_residues,
                    long,
                    overlap,
                },
                duplicate_ids: records.duplicate_ids,
                dedup: args.options.dedup,
                drop_blanks: records.drop_blanks,
                pir: records.pir,
            },
            known: args.options.options.known,
            any_alphabet,
            threads: args.threads.map_or_else(default_threads, NonZero::from),
            force: args.force,
            allow_empty: args.allow_empty,
        })
    }
}
