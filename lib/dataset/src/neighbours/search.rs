//! Compares queries with all targets.
//!
//! Products in f32 find the targets that can be among the nearest, given the largest rounding error. These are compared in f64. So the
//! result is exact, and the same for any number of threads and any order of the targets.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use arrow_array::RecordBatch;
use plmkit_contract::Stop;
use plmkit_cpu::{Epilogue, Rows, RowsMut, product_error};

use super::block::{Block, QUERIES, Queries, Source};
use super::metric::Metric;
use super::nearest::{Hit, Nearest};
use crate::{DatasetError, Merge, Parts};

/// The most bytes of decoded targets that were not compared yet.
pub(super) const WINDOW_BYTES: u64 = 8 << 20;

/// What is asked of each query.
pub(super) struct Search<'a> {
    pub(super) targets: Source<'a>,
    pub(super) metric: Metric,
    pub(super) top: usize,
    /// The least nearness of a hit.
    pub(super) least: f64,
    /// Whether queries and targets are the same rows, so that a record is no neighbour of itself.
    pub(super) same: bool,
    pub(super) threads: NonZero<usize>,
    pub(super) stop: &'a Stop,
}

/// The targets that were not compared yet: part by part, because their order does not matter.
struct Rest<'a> {
    merges: Vec<Merge<'a>>,
    advance: &'a mut (dyn FnMut(u64) + Send),
    failed: Option<DatasetError>,
}

impl Rest<'_> {
    /// Reads the next targets; `None` after the last, or if a worker failed.
    fn next_rows(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        while self.failed.is_none()
            && let Some(merge) = self.merges.last_mut()
        {
            if let Some(rows) = merge.next_rows()? {
                (self.advance)(rows.num_rows() as u64);
                return Ok(Some(rows));
            }
            self.merges.pop();
        }
        Ok(None)
    }
}

impl Search<'_> {
    /// Finds the nearest targets of all `queries`. `advance` is told the targets as they are read.
    pub(super) fn run(
        &self,
        queries: &Queries,
        advance: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), DatasetError> {
        let parts: Vec<Parts> = self.targets.each_part().collect();
        let merge = |parts| Merge::new(parts, [self.targets.place], self.stop);
        let rest = Mutex::new(Rest {
            merges: parts
                .iter()
                .map(|parts| merge(parts).within(WINDOW_BYTES))
                .collect(),
            advance,
            failed: None,
        });
        let lock = || rest.lock().unwrap_or_else(PoisonError::into_inner);
        let work = |worker: usize| {
            if let Err(error) = self.compare(queries, &rest, worker) {
                lock().failed.get_or_insert(error);
            }
        };
        thread::scope(|scope| {
            for worker in 1..self.threads.get() {
                let thread = thread::Builder::new().name("neighbours".to_owned());
                // If the system refuses a thread, the existing ones do the work.
                if thread.spawn_scoped(scope, move || work(worker)).is_err() {
                    break;
                }
            }
            work(0);
        });
        lock().failed.take().map_or(Ok(()), Err)
    }

    /// Compares all queries with the targets that this worker takes.
    fn compare(
        &self,
        queries: &Queries,
        rest: &Mutex<Rest<'_>>,
        worker: usize,
    ) -> Result<(), DatasetError> {
        let mut block = None;
        let mut products = Vec::new();
        let mut found = Vec::new();
        // Each worker begins with other queries, so that they seldom wait for the same lock.
        let first = worker * queries.chunks() / self.threads;
        loop {
            let rows = {
                let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(rows) = rest.next_rows()? else {
                    return Ok(());
                };
                rows
            };
            let packed = Block::pack(self.targets, &rows, (self.metric, block), self.stop)?;
            for chunk in (first..queries.chunks()).chain(0..first) {
                if self.stop.requested() {
                    return Err(DatasetError::stopped());
                }
                self.compare_chunk((queries, chunk), &packed, &mut products, &mut found);
            }
            block = Some(packed);
        }
    }

    /// Compares a chunk of queries with a block of targets.
    fn compare_chunk(
        &self,
        (queries, chunk): (&Queries, usize),
        block: &Block,
        products: &mut Vec<f32>,
        found: &mut Vec<(f32, usize)>,
    ) {
        let dim = self.targets.parts.layout.dim;
        let first = chunk * QUERIES;
        let count = QUERIES.min(queries.keys.len() - first);
        let vectors = &queries.values[first * dim..(first + count) * dim];
        let targets = block.keys.len();
        products.resize(count * targets, 0.0);
        let out = &mut RowsMut::new(products, targets);
        let vectors = Rows::new(vectors, dim);
        block.packed.apply(vectors, out, Epilogue::Store, None);
        let mut nearest = queries.nearest(chunk);
        for (row, nearest) in nearest.iter_mut().enumerate() {
            let products = &products[row * targets..(row + 1) * targets];
            self.add((queries, first + row), block, (products, found), nearest);
        }
    }

    /// Adds the targets of a block to the nearest of a query, given its products with them.
    fn add(
        &self,
        (queries, query): (&Queries, usize),
        block: &Block,
        (products, found): (&[f32], &mut Vec<(f32, usize)>),
        nearest: &mut Nearest,
    ) {
        let vector = queries.vector(query);
        let reach = self.metric.reach(vector.square, block.longest);
        let error = self.error() * reach + f64::from(f32::MIN_POSITIVE) * (1.0 + vector.square);
        let least = nearest.least(self.top);
        let least = least.map_or(self.least, |least| least.max(self.least));
        let limit = self.metric.product(least, vector.square) - error;
        // Sums of products that are not below it may overflow.
        let is_exact = reach < f64::from(f32::MAX);
        candidates(
            products,
            if is_exact {
                limit as f32
            } else {
                f32::NEG_INFINITY
            },
            found,
        );
        if self.same {
            found.retain(|&(_, at)| block.keys[at].0 != queries.keys[query].0);
        }
        if is_exact && found.len() > self.top {
            let descending = |one: &(f32, usize), other: &(f32, usize)| other.0.total_cmp(&one.0);
            let (_, &mut (product, _), _) = found.select_nth_unstable_by(self.top - 1, descending);
            let limit = (f64::from(product) - 2.0 * error) as f32;
            found.retain(|&(product, _)| product >= limit);
        }
        for &(_, at) in found.iter() {
            let nearness = self.metric.nearness(vector, block.vector(at));
            if nearness >= self.least {
                let key = block.keys[at];
                nearest.add(Hit { nearness, key }, self.top);
            }
        }
    }

    /// The rounding errors of a product relative to its reach: those of its sum, and of scaling, limits and biases.
    fn error(&self) -> f64 {
        product_error(self.targets.parts.layout.dim) + 8.0 * f64::from(f32::EPSILON)
    }
}

/// Finds the products that are not below a limit.
fn candidates(products: &[f32], limit: f32, found: &mut Vec<(f32, usize)>) {
    const AT_ONCE: usize = 32;
    let is_below = |product: f32| product < limit;
    found.clear();
    for (chunk, some) in products.chunks(AT_ONCE).enumerate() {
        // Without a branch for each, so that the loop is vectorised.
        if some
            .iter()
            .fold(true, |all, &product| all & is_below(product))
        {
            continue;
        }
        let places = (chunk * AT_ONCE..).zip(some);
        let others = places.filter(|&(_, &product)| !is_below(product));
        found.extend(others.map(|(at, &product)| (product, at)));
    }
}
