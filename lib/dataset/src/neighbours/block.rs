//! Vectors in memory: queries, and targets that are packed for products with them.

use std::collections::{BinaryHeap, HashSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;
use plmkit_contract::{Dtype, KeyColumns, SequenceDigest};
use plmkit_cpu::{Isa, Weights};
use plmkit_kit::{Quoted, Stop};

use super::metric::{Metric, dot};
use super::nearest::Hit;
use crate::merge::BATCH_ROWS;
use crate::{Dataset, DatasetError, Merge, Vectors};

/// The queries of one product, `(QUERIES, targets)`. Their vectors stay in a core's cache.
pub(super) const QUERIES: usize = 84;

/// A column of vectors of a dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) place: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(dataset: &'a Dataset, column: Option<&str>) -> Result<Self, DatasetError> {
        let place = dataset.column_index(column)?;
        Ok(Self { dataset, place })
    }

    pub(super) fn column(self) -> String {
        self.dataset.layout().columns[self.place].to_string()
    }

    pub(super) fn dim(self) -> usize {
        self.dataset.layout().dim
    }

    pub(super) fn path(self) -> &'a Path {
        &self.dataset.parts[0].path
    }

    /// Reads the rows in the order of the input, with windows of `bytes` together.
    pub(super) fn read(self, bytes: u64, stop: &'a Stop) -> Merge<'a> {
        Merge::new(&self.dataset.parts, [self.place], stop).within(bytes)
    }

    /// Takes the vectors of some rows, `(rows, dim)`, and the square of the norm of each. All values must be finite; for cosines, no vector may be zero.
    pub(super) fn vectors(
        self,
        rows: &RecordBatch,
        metric: Metric,
        stop: &Stop,
    ) -> Result<(ScalarBuffer<f32>, Vec<f64>), DatasetError> {
        let values = Vectors::new(&rows[&*self.column()]).values;
        let vectors = values.chunks_exact(self.dim());
        let squares: Vec<f64> = vectors.map(|vector| dot(vector, vector)).collect();
        let is_bad =
            |square: &f64| !square.is_finite() || (*square == 0.0 && metric == Metric::Cosine);
        let Some(row) = squares.iter().position(is_bad) else {
            return Ok((values, squares));
        };
        let what = if squares[row].is_finite() {
            "a vector of zeros, which has no cosine; expected another one, or another --metric"
        } else {
            "a value that is not finite; expected finite values"
        };
        let key = KeyColumns::new(rows).row(row);
        let (ordinal, id, column) = (key.ordinal, Quoted(key.id), self.column());
        let what = format!("ordinal {ordinal} {id}: {column} has {what}");
        let part = self.part_of(ordinal, stop)?;
        Err(DatasetError::content(part.unwrap_or(self.path()), what))
    }

    /// Finds the part with an ordinal.
    fn part_of(self, ordinal: u64, stop: &Stop) -> Result<Option<&'a Path>, DatasetError> {
        for part in self.dataset.parts.chunks(1) {
            let ordinals = [ordinal];
            let mut merge = Merge::new(part, [], stop).of_ordinals(&ordinals);
            if merge.next_rows()?.is_some() {
                return Ok(Some(&part[0].path));
            }
        }
        Ok(None)
    }
}

/// Queries, and their nearest targets so far.
pub(super) struct Queries {
    /// Their keys and labels.
    pub(super) rows: Vec<RecordBatch>,
    pub(super) keys: Vec<(u64, u32)>,
    /// The sequences of their rows, each with its ordinal: a protein may have several windows.
    pub(super) digests: HashSet<(u64, SequenceDigest)>,
    /// `(queries, dim)`
    pub(super) values: Vec<f32>,
    /// Of their norms.
    pub(super) squares: Vec<f64>,
    /// Of [`QUERIES`] each, so that threads work on different ones.
    nearest: Vec<Mutex<Vec<BinaryHeap<Hit>>>>,
}

impl Queries {
    /// Reads the next queries, at most `most` in whole batches of rows.
    pub(super) fn read(
        source: Source<'_>,
        merge: &mut Merge<'_>,
        most: usize,
        metric: Metric,
        stop: &Stop,
    ) -> Result<Self, DatasetError> {
        let mut queries = Self {
            rows: Vec::new(),
            keys: Vec::new(),
            digests: HashSet::new(),
            values: Vec::with_capacity(most * source.dim()),
            squares: Vec::new(),
            nearest: Vec::new(),
        };
        let key_columns: Vec<usize> = (0..source.dataset.layout().keys()).collect();
        while queries.keys.len() + BATCH_ROWS <= most
            && let Some(rows) = merge.next_rows()?
        {
            let (values, squares) = source.vectors(&rows, metric, stop)?;
            queries.values.extend_from_slice(&values);
            queries.squares.extend(squares);
            let keys = KeyColumns::new(&rows);
            queries.keys.extend(keys.rows().map(|key| key.sort_key()));
            let digests = keys.rows().map(|key| (key.ordinal, key.digest));
            queries.digests.extend(digests);
            let keys = rows.project(&key_columns);
            queries
                .rows
                .push(keys.map_err(|error| DatasetError::content(source.path(), error))?);
        }
        let chunks = queries.keys.chunks(QUERIES);
        let empty = chunks.map(|some| Mutex::new(vec![BinaryHeap::new(); some.len()]));
        queries.nearest = empty.collect();
        Ok(queries)
    }

    /// Returns the number of chunks of [`QUERIES`].
    pub(super) fn chunks(&self) -> usize {
        self.nearest.len()
    }

    /// Returns the nearest targets of the queries of a chunk.
    pub(super) fn nearest(&self, chunk: usize) -> MutexGuard<'_, Vec<BinaryHeap<Hit>>> {
        let nearest = self.nearest[chunk].lock();
        nearest.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys and labels of the queries, and the nearest targets of each, the nearest first.
    pub(super) fn into_nearest(self) -> (Vec<RecordBatch>, Vec<Vec<Hit>>) {
        let nearest = self.nearest.into_iter();
        let nearest =
            nearest.flat_map(|some| some.into_inner().unwrap_or_else(PoisonError::into_inner));
        (
            self.rows,
            nearest.map(BinaryHeap::into_sorted_vec).collect(),
        )
    }
}

/// Some targets.
pub(super) struct Block {
    pub(super) keys: Vec<(u64, u32)>,
    pub(super) digests: Vec<SequenceDigest>,
    /// `(targets, dim)`
    pub(super) values: ScalarBuffer<f32>,
    /// Of their norms.
    pub(super) squares: Vec<f64>,
    /// The largest square of a norm.
    pub(super) longest: f64,
    /// `(targets, dim)`, scaled as the metric needs them.
    pub(super) packed: Weights,
}

impl Block {
    /// Packs the vectors of some rows, into the memory of another block if it has as many.
    pub(super) fn pack(
        source: Source<'_>,
        rows: &RecordBatch,
        metric: Metric,
        old: Option<Self>,
        stop: &Stop,
    ) -> Result<Self, DatasetError> {
        let (values, squares) = source.vectors(rows, metric, stop)?;
        let dim = source.dim();
        let packed = squares.iter().map(|&square| metric.packed(square));
        let (factors, bias): (Vec<f64>, Vec<f32>) =
            packed.map(|(factor, bias)| (factor, bias as f32)).unzip();
        let mut packed = match old.map(|old| old.packed) {
            Some(packed) if packed.outputs() == bias.len() => packed.reuse(&bias),
            _ => Weights::zeros(Isa::best(), Dtype::F32, dim, &bias)?,
        };
        for mut panel in packed.panels() {
            let mut outputs = panel.outputs();
            // Successive: no output is a gate of another.
            let first = outputs.next().unwrap_or(0);
            let targets = first..first + 1 + outputs.count();
            let values = values.slice(targets.start * dim, targets.len() * dim);
            let vectors = values.chunks_exact(dim).zip(&factors[targets]);
            let scaled = vectors.flat_map(|(vector, factor)| {
                let scaled = move |&value: &f32| (f64::from(value) * factor) as f32;
                vector.iter().map(scaled)
            });
            let scaled = match metric {
                Metric::Cosine => scaled.collect(),
                Metric::Dot | Metric::Euclidean => values.clone(),
            };
            let rows = scaled.inner().chunks_exact(dim * size_of::<f32>());
            panel.pack(&rows.map(|row| (Dtype::F32, row)).collect::<Vec<_>>());
        }
        let keys = KeyColumns::new(rows);
        Ok(Self {
            keys: keys.rows().map(|key| key.sort_key()).collect(),
            digests: keys.rows().map(|key| key.digest).collect(),
            longest: squares.iter().copied().fold(0.0, f64::max),
            values,
            squares,
            packed,
        })
    }
}
