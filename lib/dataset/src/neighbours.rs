//! The nearest neighbours of the vectors of a dataset among those of another, exactly.

mod block;
mod hit_table;
mod metric;
mod nearest;
mod plan;
mod search;

use std::num::NonZero;
use std::path::PathBuf;

use plmkit_contract::{Provenance, key};
use plmkit_kit::{Stop, path_text};
use plmkit_store::{AtomicFile, TableFormat, TableWriter};
use serde_json::json;

use block::{Queries, Source};
use search::Search;

pub use hit_table::HIT_COLUMNS;
pub use metric::Metric;
pub(crate) use metric::dot;
pub use plan::Plan;

use crate::{Dataset, DatasetError};

/// What to search.
#[derive(Debug)]
pub struct NeighboursConfig {
    /// The column of vectors, if there are several.
    pub column: Option<String>,
    /// The targets of each query.
    pub top: NonZero<usize>,
    /// How near vectors are.
    pub metric: Metric,
    /// The least score of a hit. A distance has none.
    pub min_score: Option<f64>,
    /// Whether targets with the sequence of a query are no hits of it.
    pub no_self: bool,
    /// Whether the queries were embedded for this search, as the targets were, but maybe by a device that does not compute in their
    /// type. They are records of the targets if they are of the same FASTA files, and a table of text has the columns that people read.
    pub is_fresh: bool,
    pub threads: NonZero<usize>,
    /// The most bytes of memory.
    pub memory: u64,
    /// How the hits are written.
    pub format: TableFormat,
    /// The table to write.
    pub out: PathBuf,
    /// Whether to replace another file.
    pub force: bool,
}

/// By how much the ordinals of the targets exceed those of the same rows among the queries; `None` if these are other rows.
fn same_rows(queries: &Dataset, targets: &Dataset, is_fresh: bool) -> Option<i64> {
    let more = offset_in(targets, queries, is_fresh).map(u64::cast_signed);
    let less = || offset_in(queries, targets, false).map(u64::cast_signed);
    more.or_else(|| Some(-less()?))
}

/// The first ordinal in `all` of rows that are all of it, or a sample; if `is_fresh`, of records of the same FASTA files.
fn offset_in(all: &Dataset, rows: &Dataset, is_fresh: bool) -> Option<u64> {
    let (asked, has_files) = (rows.digest(), is_fresh && inputs(rows).next().is_some());
    let is_same = |of: &Dataset| of.digest() == asked || (has_files && inputs(of).eq(inputs(rows)));
    if is_same(all) {
        return Some(0);
    }
    let mut first = 0;
    let offsets = all.samples().iter().map(|sample| {
        let offset = all.parts[first].offset;
        first += sample.parts.len();
        (sample, offset)
    });
    let mut same = offsets.filter(|(sample, _)| is_same(sample));
    same.next().map(|(_, offset)| offset)
}

/// The digests of the FASTA files of a dataset, if its records have their order.
fn inputs(of: &Dataset) -> impl Iterator<Item = &String> {
    let manifest = of.manifest.iter().filter(|of| of.translation.is_none());
    manifest
        .flat_map(|of| &of.inputs)
        .map(|input| &input.digest)
}

/// Writes a table with the nearest targets of each query, in the order of the queries. Equally near targets are in the order of the
/// input. If the queries are among the targets, as all or as a sample of these, no record is a neighbour of itself. `tell` is told the plan, `advance` the targets
/// as they are read, and the number of all. Returns the number of hits.
///
/// # Errors
/// If the vectors of the two were not made alike, or if one has a value that is not finite, or a cosine is asked of one of zeros.
pub fn neighbours(
    config: &NeighboursConfig,
    [queries, targets]: [&Dataset; 2],
    tell: impl FnOnce(&Plan),
    mut advance: impl FnMut(u64, u64) + Send,
    stop: &Stop,
) -> Result<u64, DatasetError> {
    let column = config.column.as_deref();
    let [queries, targets] = [Source::new(queries, column)?, Source::new(targets, column)?];
    if !config.is_fresh {
        check_alike(queries, targets)?;
    }
    let plan = Plan::new(config, queries, targets, stop)?;
    tell(&plan);
    let all = plan.passes * targets.dataset.rows();
    let mut advance = |rows| advance(rows, all);
    let search = Search {
        targets,
        metric: config.metric,
        top: config.top.get(),
        least: config.min_score.unwrap_or(f64::NEG_INFINITY),
        same: same_rows(queries.dataset, targets.dataset, config.is_fresh),
        no_self: config.no_self,
        threads: plan.threads,
        stop,
    };
    let file = AtomicFile::create(&config.out)?.keeping(!config.force);
    let is_short = config.is_fresh && config.format != TableFormat::Parquet;
    let schema = hit_table::schema([queries, targets].map(|source| source.dataset), is_short);
    let mut table = TableWriter::create(
        file,
        &schema,
        config.format,
        about(config, queries, targets),
    )?;
    let mut rows = queries.read(plan.windows, stop);
    let mut count = 0;
    loop {
        let most = plan.queries as usize;
        let some = Queries::read(queries, &mut rows, most, config.metric, stop)?;
        if some.keys.is_empty() {
            break;
        }
        search.run(&some, &mut advance)?;
        let write = |hits: &_| Ok(table.write(hits)?);
        count += hit_table::each_batch(&schema, some, targets, config.metric, write, stop)?;
    }
    table.finish()?;
    Ok(count)
}

/// Checks that the vectors of two datasets are of one model, layer and pooling, computed and stored in one type.
fn check_alike(queries: Source<'_>, targets: Source<'_>) -> Result<(), DatasetError> {
    let made = |source: Source<'_>| {
        let Provenance { options, .. } = &source.dataset.parts[0].provenance;
        let option = |name: &str| {
            options
                .get(name)
                .map_or("unset".into(), ToString::to_string)
        };
        [
            ("model", option("model")),
            ("column", source.column()),
            ("dtype", option("dtype")),
            ("store_dtype", source.dataset.layout().dtype.to_string()),
            ("dimension", source.dim().to_string()),
        ]
    };
    for ((what, expected), (_, found)) in made(queries).into_iter().zip(made(targets)) {
        if expected != found {
            let place = path_text(queries.path());
            let what = format!("expected {what} {expected} as in {place}, found {found}");
            return Err(DatasetError::content(targets.path(), what));
        }
    }
    Ok(())
}

/// The metadata of the table.
fn about(
    config: &NeighboursConfig,
    queries: Source<'_>,
    targets: Source<'_>,
) -> [(String, String); 3] {
    let inputs = [queries, targets].map(|source| source.dataset.digest().to_string());
    let options = json!({
        "column": queries.column(),
        "metric": config.metric.to_string(),
        "min_score": config.min_score,
        "top": config.top,
    });
    [
        (key::TOOL, "query-embeddings".to_owned()),
        (key::INPUTS, json!(inputs).to_string()),
        (key::OPTIONS, options.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}
