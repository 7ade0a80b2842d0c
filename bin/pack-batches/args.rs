//! The command line.

use std::path::PathBuf;

use clap::Parser;
use plmkit_cli::{Common, Fault, NamedPath, Program, file, keep_apart, keep_renameable};
use plmkit_contract::{BatchSize, DEFAULT_BATCH_TOKENS};
use plmkit_store::read_sealed;

/// Packs the sequences of a shard into batches without padding
///
/// Each batch holds at most --max-batch-tokens tokens; a sequence longer than that gets a batch of its own. The
/// packing is best-fit decreasing for one section of the shard after the other, so that results can be written in the
/// order of the input. The windows of one protein stay in their order in one batch, or in consecutive ones if together they are longer than
/// --max-batch-tokens. The same shard and the same options give the same bytes.
///
/// An output that is already complete is left alone.
#[derive(Debug, Parser)]
#[command(name = "pack-batches", version)]
pub(crate) struct Args {
    /// Shard to pack, written by fasta-shard
    #[arg(value_name = "SHARD.parquet")]
    #[arg(value_parser = file())]
    shard: PathBuf,

    /// Batches file to write (Arrow IPC file, one record batch a pack)
    #[arg(long, value_name = "FILE.arrow", help_heading = "Output")]
    #[arg(value_parser = file())]
    out: PathBuf,

    /// Write how full the batches are, and what padding would have cost, as JSON; `-` is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    report: Option<PathBuf>,

    /// Replace an output that holds other work
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Most tokens in a batch, `<cls>` and `<eos>` of each sequence included
    ///
    /// Larger batches keep a GPU busier and take more of its memory. The memory that a batch needs grows with its
    /// tokens, and hardly with the lengths of its sequences.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = DEFAULT_BATCH_TOKENS.get(),
        help_heading = "Packing"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    max_batch_tokens: u32,

    /// Take --max-batch-tokens from a file of gpu-embed --probe, which measured it for a GPU
    #[arg(long, value_name = "FILE.json", help_heading = "Packing")]
    #[arg(conflicts_with = "max_batch_tokens")]
    #[arg(value_parser = file())]
    batch_size: Option<PathBuf>,

    /// Take the descriptions of the FASTA along, as a column of the batches and of the embeddings
    #[arg(long, help_heading = "Packing")]
    description: bool,

    #[command(flatten)]
    common: Common,
}

impl Program for Args {
    const NAME: &'static str = "pack-batches";

    fn common(&self) -> &Common {
        &self.common
    }
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) shard: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) report: Option<PathBuf>,
    pub(crate) force: bool,
    /// Whether descriptions go along.
    pub(crate) description: bool,
    /// 1 to `i32::MAX`: what the offsets of a list can count.
    pub(crate) max_batch_tokens: u32,
}

impl TryFrom<Args> for Config {
    type Error = Fault;

    fn try_from(args: Args) -> Result<Self, Fault> {
        keep_renameable(&[("--out", &args.out)])?;
        let report = args.report.iter().map(|path| ("--report", path.as_path()));
        let outputs = [("--out", args.out.as_path())].into_iter().chain(report);
        let outputs: Vec<NamedPath> = outputs.collect();
        let size = args.batch_size.iter();
        let size = size.map(|path| ("--batch-size", path.as_path()));
        let inputs: Vec<NamedPath> = [("the shard", args.shard.as_path())]
            .into_iter()
            .chain(size)
            .collect();
        keep_apart(&inputs, &outputs)?;
        let max_batch_tokens = match &args.batch_size {
            Some(path) => read_sealed::<BatchSize>(path)?.max_batch_tokens.get(),
            None => args.max_batch_tokens,
        };
        Ok(Self {
            shard: args.shard,
            out: args.out,
            report: args.report,
            force: args.force,
            description: args.description,
            max_batch_tokens,
        })
    }
}
