//! The options of a run.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Arg, Parser, ValueEnum};
use plmkit_cli::{Common, Given, file};
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};
use plmkit_sequence::ShardLimit;

/// Embed FASTA files: from records to a validated dataset
///
/// Does the work of fasta-shard, pack-batches, gpu-embed, monitor-log and validate-embeddings, one after the other, and takes their
/// options. Run the same command again after an interruption: finished work is kept, and the results are those of an uninterrupted run.
///
/// Options, inputs and the model are checked first, and a refused run changes nothing. Later, a
/// sample with an error stops no other; the summary at the end names it.
///
/// Exit codes: 0, every sample is embedded and its validation passed, or it has no protein and another sample has; 1, a validation
/// failed; otherwise the code of the program that failed.
#[derive(Debug, Parser)]
#[command(name = "plmkit", version)]
// The group that says whether there is a run is empty by default, because other structs are flattened into this one.
#[group(args = ["inputs"])]
#[command(mut_args(of_a_run))]
#[expect(clippy::struct_excessive_bools, reason = "a switch each")]
pub(crate) struct Args {
    /// FASTA files, a sample each; or one table of samples, with the columns `sample` and `fasta`
    ///
    /// A FASTA may be compressed by gzip, bgzip or zstd. Its sample has the name of the file, without folder and extension. A table
    /// is CSV, or TSV if its header has a tab; lines of one sample are read in their order. Paths are relative to the working
    /// directory, in a table too. - is a FASTA on standard input, the sample `stdin`; a run that resumes reads it again.
    #[arg(value_name = "INPUT", required = true, value_parser = input())]
    pub(crate) inputs: Vec<PathBuf>,

    /// Folder for the results, created if missing
    #[arg(long, value_name = "DIR", help_heading = "Output", value_parser = file())]
    pub(crate) out: PathBuf,

    /// Replace results that are damaged or were made with other options, inputs or weights
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,

    /// Read every byte of finished samples, too: without it, files with unchanged sizes and times are not read again
    #[arg(long, help_heading = "Output")]
    pub(crate) verify: bool,

    /// Accept a sample of which every record is rejected, or that has no record
    #[arg(long, help_heading = "Output")]
    pub(crate) allow_empty: bool,

    /// Folder or weight file of the model, or an id of the Hugging Face Hub
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: String,

    /// Fetch the model from the Hub if it is not in the local cache
    #[arg(long, help_heading = "Model")]
    pub(crate) download: bool,

    #[command(flatten)]
    pub(crate) fasta_shard: Given<fasta_shard::Options>,

    #[command(flatten)]
    pub(crate) pack_batches: Given<pack_batches::Options>,

    #[command(flatten)]
    pub(crate) gpu_embed: Given<gpu_embed::Options>,

    #[command(flatten)]
    pub(crate) validate_embeddings: Given<validate_embeddings::Options>,

    /// Tokens in a shard, the unit of resuming and of a scheduler; with N+M, each shard has M more than the one before it
    #[arg(
        long,
        value_name = "TOKENS",
        default_value = "500000+25000",
        help_heading = "Stages"
    )]
    pub(crate) max_shard_tokens: ShardLimit,

    /// Do one stage only, for a scheduler
    #[arg(long, value_name = "STAGE", help_heading = "Stages")]
    pub(crate) stage: Option<Stage>,

    /// With --stage embed: the share of the shards to embed, as in 3/20
    #[arg(
        long,
        value_name = "N/COUNT",
        value_parser = task,
        help_heading = "Stages"
    )]
    pub(crate) task: Option<(usize, usize)>,

    /// Compute in N child processes, as on so many GPUs
    #[cfg_attr(feature = "testing", arg(long, value_name = "N", hide = true))]
    #[cfg_attr(not(feature = "testing"), arg(skip))]
    pub(crate) children: Option<usize>,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl Args {
    /// Whether records are read and cut, and not shards of an earlier stage taken.
    pub(crate) fn is_start(&self) -> bool {
        !matches!(self.stage, Some(Stage::Embed | Stage::Finish))
    }
}

/// A part of the run that a scheduler gives its own job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Check everything, write nothing, and print a line for each FASTA: its sample, a tab, its path
    Check,
    /// Check everything, cut all samples, and print the number of shards
    Prepare,
    /// Pack and embed the shards of --task
    Embed,
    /// Validate all samples, and write the summary
    Finish,
}

/// What the short help shows beside the options of all programs.
const USUAL: &str = "inputs out force verify allow_empty model download max_shard_tokens dedup known translate long_policy \
                     invalid duplicate_ids pool layers residues scores device dtype threads";

/// An option as a run has it.
fn of_a_run(option: Arg) -> Arg {
    let is_general = option.get_help_heading() == Some("General");
    let mut usual = USUAL.split_whitespace();
    let is_usual = usual.any(|name| name == option.get_id().as_str());
    let option = option.hide_short_help(!is_usual && !is_general);
    match option.get_id().as_str() {
        "device" => option.help("Device to compute on: auto, cpu, cuda, cuda:N or all"),
        // A run always does.
        "wait_for_lock" => option.hide(true),
        _ => option,
    }
}

/// Parses an input: `-`, or a file.
pub(crate) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| match path.to_str() {
        Some(name) if name.starts_with('-') && name != "-" => Path::new(".").join(path),
        _ => path,
    })
}

/// Parses `N/COUNT`, where N counts from 1.
fn task(text: &str) -> Result<(usize, usize), &'static str> {
    let parsed = text.split_once('/').and_then(|(number, count)| {
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        (1..=count).contains(&number).then_some((number, count))
    });
    parsed.ok_or("expected a task and their number, such as 3/20")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_count_from_1() {
        assert_eq!(task("3/20"), Ok((3, 20)));
        assert_eq!(task("20/20"), Ok((20, 20)));
        for wrong in ["0/20", "21/20", "3", "/", "a/b", "-1/2"] {
            assert!(task(wrong).is_err(), "{wrong}");
        }
    }
}
