//! What `query-embeddings` and `plmkit` have in common.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::slice;
use std::str::FromStr;

use plmkit_cli::{
    Fault, NamedPath, ProgressDisplay, ProgressMode, Stop, default_threads, ensure_distinct,
    ensure_no_stream, ensure_same_kind, variant,
};
use plmkit_dataset::{
    Dataset, DatasetError, HIT_COLUMNS, Metric, NeighboursConfig, Plan, check_outside, has_shards,
    neighbours,
};
use plmkit_kit::{path_text, plural};
use plmkit_store::{FileKind, Replaceable, TableFormat, is_line_of};

/// Opens a dataset whose validation has passed, or those of the samples in a folder of results, of which no file is an output. No output
/// is one of the other `inputs`, or replaces a file that is not its `own` kind.
///
/// # Errors
/// The dataset cannot be opened, or an output is none of its own.
pub fn open(
    dataset: &Path,
    inputs: &[NamedPath],
    outputs: &[NamedPath],
    own: &[Replaceable],
    stop: &Stop,
) -> Result<Dataset, Fault> {
    ensure_no_stream(outputs)?;
    let opened = open_all(dataset, Err, stop)?;
    let files = opened.files();
    let files = files.iter().map(|file| ("the dataset", file.as_path()));
    let inputs: Vec<NamedPath> = files.chain(inputs.iter().copied()).collect();
    ensure_distinct(&inputs, outputs)?;
    for (_, output) in outputs {
        let mut samples = opened.samples().iter();
        samples.try_for_each(|sample| check_outside(output, &sample.path))?;
    }
    for (output, own) in outputs.iter().zip(own) {
        ensure_same_kind(slice::from_ref(output), *own)?;
    }
    Ok(opened)
}

/// Tells what is wrong with a sample in a folder of results.
pub fn warn(path: &Path, what: &str) {
    tracing::warn!("{}: {what}", path_text(path));
}

/// Opens a dataset, or the samples in a folder of results. If a dataset has shards, but no validation yet, that is told: rows may be
/// missing.
///
/// # Errors
/// See [`Dataset::open_all`].
pub fn open_all(
    dataset: &Path,
    on_failed: impl FnOnce(DatasetError) -> Result<(), DatasetError>,
    stop: &Stop,
) -> Result<Dataset, Fault> {
    let opened = Dataset::open_all(dataset, on_failed, warn, stop)?;
    if opened.listed.is_none() && has_shards(&opened.path) {
        let rows = plural(opened.rows(), "row");
        let what = format!("not validated, so rows may be missing or wrong: found {rows}");
        warn(&opened.path, &what);
    }
    Ok(opened)
}

/// Returns the format of a file: the given one, or that which its extension names, if it names one.
pub fn format_of<T: FromStr>(given: Option<T>, file: &Path) -> Option<T> {
    given.or_else(|| file.extension()?.to_str()?.parse().ok())
}

/// Returns the format of a table. Without an extension, it is the `default`.
///
/// # Errors
/// The extension names none.
pub fn format_of_table<T: FromStr>(given: Option<T>, file: &Path, default: T) -> Result<T, Fault> {
    match format_of(given, file) {
        None if file.extension().is_some() => {
            let what = "its name ends with no known format: expected another name, or --format";
            Err(Fault::usage(format!("--out {}: {what}", path_text(file))))
        }
        format => Ok(format.unwrap_or(default)),
    }
}

/// What a table of hits may replace.
pub fn earlier_hits(format: TableFormat) -> Replaceable<'static> {
    match format {
        TableFormat::Parquet => Replaceable::Whole(FileKind::Hits),
        TableFormat::Tsv | TableFormat::Csv => {
            Replaceable::Lines(None, |first, line| is_line_of(&HIT_COLUMNS, first, line))
        }
    }
}

/// The options of a search.
#[derive(Debug, clap::Args)]
pub struct HitsArgs {
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
    pub column: Option<String>,

    /// Most threads [default: the CPUs that this process may use, at most `SLURM_CPUS_PER_TASK`]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,

    /// Most memory, such as 500M or 8G; with less, the targets are read more often
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes)]
    memory: u64,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,

    /// How progress is shown on standard error
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    pub progress: ProgressMode,
}

/// Parses a number of bytes: `K`, `M`, `G` and `T` are powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let power = text.chars().last().and_then(|last| "KMGT".find(last));
    let number = power.map_or(text, |_| &text[..text.len() - 1]);
    let unit = power.map_or(1, |power| 1 << (10 * (power + 1)));
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes.ok_or_else(|| "expected bytes, such as 500M or 8G".to_owned())
}

impl HitsArgs {
    /// Returns what to search, of any targets.
    ///
    /// # Errors
    /// There is a least score that no hit can have.
    pub fn config(&self, out: PathBuf, format: TableFormat) -> Result<NeighboursConfig, Fault> {
        if self.min_score.is_some_and(f64::is_nan) {
            return Err(Fault::usage("--min-score: expected a number, found NaN"));
        }
        if self.min_score.is_some() && self.metric == Metric::Euclidean {
            let what = "--min-score: expected --metric cosine or dot with it; a distance is smaller the nearer a hit is";
            return Err(Fault::usage(what));
        }
        Ok(NeighboursConfig {
            column: self.column.clone(),
            top: self.top,
            metric: self.metric,
            min_score: self.min_score,
            no_self: false,
            is_fresh: false,
            threads: self.threads.unwrap_or_else(default_threads),
            memory: self.memory,
            format,
            out,
            force: self.force,
        })
    }
}

/// Searches, and shows progress. Returns the number of hits.
///
/// # Errors
/// See [`neighbours`].
pub fn search(
    config: &NeighboursConfig,
    datasets: [&Dataset; 2],
    mode: ProgressMode,
    quiet: bool,
    stop: &Stop,
) -> Result<u64, Fault> {
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
    let shown = rows_shown(mode, quiet);
    Ok(neighbours(config, datasets, tell, shown, stop)?)
}

/// Shows the progress of work that tells the rows as they are done, and the number of all, unless it is to be quiet.
pub fn rows_shown(mode: ProgressMode, quiet: bool) -> impl FnMut(u64, u64) + Send {
    let mut progress = None;
    move |rows, all| {
        let start = || ProgressDisplay::start(mode, quiet, "rows", all);
        progress.get_or_insert_with(start).advance(rows);
    }
}
