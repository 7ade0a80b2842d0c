//! The table of hits.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use plmkit_contract::{COMBINED, DESCRIPTION, EmbeddingWork, KeyColumns, SAMPLE};
use plmkit_kit::Stop;

use super::block::{Queries, Source};
use super::metric::Metric;
use super::nearest::Hit;
use crate::{Dataset, DatasetError, Merge};

/// The hits that are written at once.
const BATCH_HITS: usize = 1 << 16;

/// The columns of a query and of a target, by their names in embeddings files.
const KEYS: [(&str, [&str; 2]); 5] = [
    ("id", ["query", "target"]),
    ("ordinal", ["query_ordinal", "target_ordinal"]),
    ("start", ["query_start", "target_start"]),
    (SAMPLE, ["query_sample", "target_sample"]),
    (DESCRIPTION, ["query_description", "target_description"]),
];

/// All columns that hits may have.
pub const HIT_COLUMNS: [&str; 12] = [
    "query",
    "target",
    "rank",
    "score",
    "query_ordinal",
    "target_ordinal",
    "query_start",
    "target_start",
    "query_sample",
    "target_sample",
    "query_description",
    "target_description",
];

/// Returns the columns of hits between datasets; if `is_short`, those that tell hits apart, and the descriptions.
pub(super) fn schema(datasets: [&Dataset; 2], is_short: bool) -> SchemaRef {
    let mut fields = Vec::new();
    for (key, names) in KEYS {
        for (dataset, name) in datasets.into_iter().zip(names) {
            let options = &dataset.parts[0].provenance.options;
            let is_needed = match key {
                "start" => EmbeddingWork::new(options).has_separate_windows(),
                SAMPLE => dataset.samples().len() > 1 || options.contains_key(COMBINED),
                _ => key != "ordinal",
            };
            if let Ok(field) = dataset.layout().schema().field_with_name(key)
                && (is_needed || !is_short)
            {
                fields.push(field.clone().with_name(name));
            }
        }
    }
    // The ids first, as people read them.
    let rank = Field::new("rank", DataType::UInt32, false);
    let score = Field::new("score", DataType::Float64, false);
    fields.splice(2..2, [rank, score]);
    Arc::new(Schema::new(fields))
}

/// Gives `write` the hits of all queries, in the order of the queries, the nearest first. Returns their number.
pub(super) fn each_batch(
    schema: &SchemaRef,
    queries: Queries,
    targets: Source<'_>,
    metric: Metric,
    mut write: impl FnMut(&RecordBatch) -> Result<(), DatasetError>,
    stop: &Stop,
) -> Result<u64, DatasetError> {
    let failed = |error: ArrowError| DatasetError::content(targets.path(), error);
    let (query_rows, nearest) = queries.into_nearest();
    let Some(first) = query_rows.first() else {
        return Ok(0);
    };
    let query_rows = concat_batches(&first.schema(), &query_rows).map_err(failed)?;
    let mut ordinals: Vec<u64> = nearest.iter().flatten().map(|hit| hit.key.0).collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    let (keys, target_rows) = rows_of(targets, &ordinals, stop)?;
    let mut hits = nearest.iter().enumerate().flat_map(|(query, hits)| {
        let ranked = (1_u32..).zip(hits);
        ranked.map(move |(rank, hit)| (query as u32, rank, *hit))
    });
    let mut count = 0;
    loop {
        let some: Vec<(u32, u32, Hit)> = hits.by_ref().take(BATCH_HITS).collect();
        if some.is_empty() {
            return Ok(count);
        }
        count += some.len() as u64;
        let place = |hit: &Hit| keys.partition_point(|key| *key < hit.key) as u32;
        let places = [
            some.iter()
                .map(|&(query, _, _)| query)
                .collect::<UInt32Array>(),
            some.iter().map(|(_, _, hit)| place(hit)).collect(),
        ];
        let ranks = UInt32Array::from_iter_values(some.iter().map(|hit| hit.1));
        let scores = some.iter().map(|hit| metric.score(hit.2.nearness()));
        let scores = Float64Array::from_iter_values(scores);
        let own = [Arc::new(ranks) as ArrayRef, Arc::new(scores)];
        let columns = schema.fields().iter().map(|field| {
            let of = |names: &[&str; 2]| names.iter().position(|name| name == field.name());
            match KEYS.iter().find_map(|(key, names)| Some((key, of(names)?))) {
                Some((key, of)) => take(&[&query_rows, &target_rows][of][*key], &places[of], None),
                None => Ok(Arc::clone(&own[usize::from(field.name() == "score")])),
            }
        });
        let columns = columns.collect::<Result<_, _>>().map_err(failed)?;
        let rows = RecordBatch::try_new(Arc::clone(schema), columns);
        write(&rows.map_err(failed)?)?;
    }
}

/// Reads ordinals and starts, and the columns of [`KEYS`], of the rows with these ordinals, which are in order.
fn rows_of(
    source: Source<'_>,
    ordinals: &[u64],
    stop: &Stop,
) -> Result<(Vec<(u64, u32)>, RecordBatch), DatasetError> {
    let failed = |error: ArrowError| DatasetError::content(source.path(), error);
    let schema = source.dataset.layout().schema();
    let columns = KEYS.iter().filter_map(|(key, _)| schema.index_of(key).ok());
    let columns: Vec<usize> = columns.collect();
    let mut merge = Merge::new(&source.dataset.parts, [], stop).of_ordinals(ordinals);
    let (mut keys, mut found) = (Vec::new(), Vec::new());
    while let Some(rows) = merge.next_rows()? {
        keys.extend(KeyColumns::new(&rows).rows().map(|key| key.sort_key()));
        found.push(rows.project(&columns).map_err(failed)?);
    }
    let schema = schema.project(&columns).map_err(failed)?;
    let rows = concat_batches(&Arc::new(schema), &found).map_err(failed)?;
    Ok((keys, rows))
}
