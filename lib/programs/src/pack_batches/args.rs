//! The command line.

use std::path::PathBuf;

use clap::Parser;
use plmkit_cli::{
    Common, Fault, Given, NamedPath, Program, ensure_distinct, ensure_no_stream, ensure_reports,
    ensure_same_kind, file,
};
use plmkit_contract::{BatchSize, DEFAULT_BATCH_TOKENS};
use plmkit_store::{FileKind, Replaceable, read_sealed};

/// Pack the sequences of a shard into batches without padding
///
/// A batch holds at most --max-batch-tokens tokens. A longer sequence gets its own batch. Packing is best-fit decreasing
/// within one section of the shard after another, so that results can be written in input order. The windows of one
/// protein stay together in order: in one batch, or in consecutive batches if they have more than --max-batch-tokens
/// tokens. The same shard and options give the same bytes.
///
/// A complete output is kept as it is.
#[derive(Clone, Debug, Parser)]
#[command(name = "pack-batches", version)]
pub struct Args {
    /// Shard to pack, written by fasta-shard
    #[arg(value_name = "SHARD.parquet", value_parser = file())]
    pub shard: PathBuf,

    /// Batches file to write (Arrow IPC file, one record batch for each batch)
    #[arg(long, value_name = "FILE.arrow", value_parser = file(), help_heading = "Output")]
    pub out: PathBuf,

    /// Write a JSON report: how full the batches are, and what padding would cost; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Overwrite an existing output
    #[arg(long, help_heading = "Output")]
    pub force: bool,

    /// Read --max-batch-tokens from a file that gpu-embed --probe wrote
    #[arg(long, value_name = "FILE.json", value_parser = file(), help_heading = "Packing")]
    #[arg(conflicts_with = "max_batch_tokens")]
    pub batch_size: Option<PathBuf>,

    #[command(flatten)]
    pub options: Given<Options>,

    /// The options of all programs.
    #[command(flatten)]
    pub common: Common,
}

/// The options that decide what batches are like.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Most tokens in a batch, with `<cls>` and `<eos>` of each sequence [default: 16384]
    ///
    /// Larger batches keep a GPU busier and take more of its memory. The memory of a batch grows with its tokens and
    /// hardly with the lengths of its sequences.
    #[arg(long, value_name = "TOKENS", help_heading = "Packing")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub max_batch_tokens: Option<u32>,

    /// Add the descriptions of the FASTA headers as a column of the batches and embeddings
    #[arg(long, help_heading = "Packing")]
    pub description: bool,
}

impl Program for Args {
    const NAME: &'static str = "pack-batches";

    fn common(&self) -> &Common {
        &self.common
    }
}

impl Args {
    /// Checks that no output is an input or another output.
    pub(crate) fn check_paths(&self) -> Result<(), Fault> {
        ensure_no_stream(&[("--out", &self.out)])?;
        let mut inputs: Vec<NamedPath> = vec![("the shard", &self.shard)];
        inputs.extend(self.batch_size.iter().map(|path| ("--batch-size", &**path)));
        let mut outputs: Vec<NamedPath> = vec![("--out", &self.out)];
        outputs.extend(self.report.iter().map(|path| ("--report", &**path)));
        ensure_distinct(&inputs, &outputs)?;
        let own = Replaceable::Damaged(FileKind::Batches, b"ARROW1");
        ensure_same_kind(&outputs[..1], own)?;
        ensure_reports(&outputs[1..])
    }

    /// Returns the most tokens in a batch: 1 to `i32::MAX`, the limit of list offsets.
    pub(crate) fn batch_tokens(&self) -> Result<u32, Fault> {
        let Some(path) = &self.batch_size else {
            let tokens = self.options.max_batch_tokens;
            return Ok(tokens.unwrap_or(DEFAULT_BATCH_TOKENS.get()));
        };
        let measured: BatchSize = read_sealed(path)?;
        Ok(measured.max_batch_tokens.get())
    }
}
