//! `query-embeddings neighbours`.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, ProgressDisplay, ProgressMode, Stop, file, variant};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{Dataset, Metric, NeighboursConfig, Plan, dataset_folder, neighbours};
use plmkit_store::TableFormat;

use crate::{format_of_table, open};

/// Find the nearest proteins of each protein, exactly
///
/// Compares the vectors of all queries with those of all targets, and writes a table with a line for each hit. Products in f32 find the
/// candidates, and f64 decides. The table does not depend on threads, parts or the instructions of the CPU. With the same dataset twice,
/// no protein is a neighbour of itself.
#[derive(Debug, clap::Args)]
pub(crate) struct NeighboursArgs {
    /// Dataset whose proteins are compared: a folder of results, of a sample or of many; dataset.json; or an embeddings file
    #[arg(value_name = "QUERIES", value_parser = file().map(dataset_folder))]
    queries: PathBuf,

    /// Dataset that is searched: its vectors are of the same model, layer, pooling and types
    #[arg(value_name = "TARGETS", value_parser = file().map(dataset_folder))]
    targets: PathBuf,

    /// Hits of each query; of a smaller dataset, all
    #[arg(long, value_name = "N", default_value = "10")]
    top: NonZero<usize>,

    /// Score of two vectors
    #[arg(long, value_name = "METRIC", default_value = "cosine", value_parser = variant::<Metric>())]
    metric: Metric,

    /// Leave out hits with a lower score, of cosine or dot
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    min_score: Option<f64>,

    /// Column of vectors, if there are several
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,

    /// Table to write; an existing one with the same content is kept
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: PathBuf,

    /// Format of the table [default: by the extension of the file; without one, parquet]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<TableFormat>())]
    format: Option<TableFormat>,

    /// Most threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Most memory, such as 500M or 8G; with less, the targets are read more often
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes)]
    memory: u64,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,

    /// How progress is shown on standard error
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    progress: ProgressMode,
}

/// Parses a number of bytes: `K`, `M`, `G` and `T` are powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let power = text.chars().last().and_then(|last| "KMGT".find(last));
    let number = power.map_or(text, |_| &text[..text.len() - 1]);
    let unit = power.map_or(1, |power| 1 << (10 * (power + 1)));
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes.ok_or_else(|| "expected bytes, such as 500M or 8G".to_owned())
}

impl NeighboursArgs {
    pub(crate) fn run(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        if self.min_score.is_some_and(f64::is_nan) {
            return Err(Fault::usage("--min-score: expected a number, found NaN"));
        }
        if self.min_score.is_some() && self.metric == Metric::Euclidean {
            let what = "--min-score: expected --metric cosine or dot with it; a distance is smaller the nearer a hit is";
            return Err(Fault::usage(what));
        }
        let format = format_of_table(self.format, &self.out, TableFormat::Parquet)?;
        let magic = (format == TableFormat::Parquet).then_some(&b"PAR1"[..]);
        let outputs = (&[("--out", &*self.out)][..], magic);
        let open = |dataset| open(dataset, &[], outputs, stop);
        let [queries, targets] = [open(&self.queries)?, open(&self.targets)?];
        let cpus = || available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let config = NeighboursConfig {
            column: self.column,
            top: self.top,
            metric: self.metric,
            min_score: self.min_score,
            threads: self.threads.unwrap_or_else(cpus),
            memory: self.memory,
            format,
            out: self.out,
            force: self.force,
        };
        let datasets = [&queries, &targets];
        let tell = |plan: &Plan| {
            let [rows, targets] = datasets.map(Dataset::rows);
            tracing::info!(
                "{} against {targets}: about {} MiB of memory, {}, {}",
                plural(rows, "row"),
                plan.memory >> 20,
                plural(plan.threads.get() as u64, "thread"),
                plural(plan.passes, "pass"),
            );
        };
        let mut progress = None;
        let advance = |rows, all| {
            let start = || ProgressDisplay::start(self.progress, quiet, "rows", all);
            progress.get_or_insert_with(start).advance(rows);
        };
        let hits = neighbours(&config, datasets, tell, advance, stop);
        drop(progress);
        let (out, hits) = (path_text(&config.out), hits?);
        tracing::info!("{out}: {}", plural(hits, "hit"));
        Ok(Exit::Done)
    }
}
