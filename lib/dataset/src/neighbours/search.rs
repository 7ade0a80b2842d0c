//! Compares queries with all targets.
//!
//! Products in f32 find the targets that can be among the nearest, given the largest rounding error. These are compared in f64. So the
//! result is exact, and the same for any number of threads and any order of the targets.

use std::collections::BinaryHeap;
use std::iter;
use std::num::NonZero;

use arrow_array::RecordBatch;
use plmkit_cpu::{Epilogue, Rows, RowsMut, product_error};
use plmkit_kit::Stop;
use plmkit_store::StoreError;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

use super::block::{Block, QUERIES, Queries, Source};
use super::metric::Metric;
use super::nearest::{Hit, add, least};
use crate::{DatasetError, Merge};

/// The most bytes of decoded targets that were not compared yet.
pub(super) const WINDOW_BYTES: u64 = 8 << 20;

/// What is asked of each query.
pub(super) struct Search<'a> {
    pub(super) targets: Source<'a>,
    pub(super) metric: Metric,
    pub(super) top: usize,
    /// The least nearness of a hit.
    pub(super) least: f64,
    /// By how much ordinals of the targets exceed those of the same rows among the queries, which are no neighbours of themselves.
    pub(super) same: Option<i64>,
    /// Whether targets with the sequence of a query are no neighbours of it either.
    pub(super) no_self: bool,
    pub(super) threads: NonZero<usize>,
    pub(super) stop: &'a Stop,
}

impl Search<'_> {
    /// Finds the nearest targets of all `queries`. `advance` is told the targets as they are read.
    pub(super) fn run(
        &self,
        queries: &Queries,
        advance: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), DatasetError> {
        // Part by part, because the order of the targets does not matter.
        let targets = self.targets.dataset.parts.chunks(1).flat_map(|part| {
            let merge = Merge::new(part, [self.targets.place], self.stop);
            let mut merge = merge.within(WINDOW_BYTES);
            iter::from_fn(move || merge.next_rows().transpose())
        });
        let mut targets = targets.inspect(|rows| {
            advance(rows.as_ref().map_or(0, |rows| rows.num_rows() as u64));
        });
        let compare = |block: &mut _, rows: Result<_, _>| self.compare(queries, block, &rows?);
        let pool = ThreadPoolBuilder::new().num_threads(self.threads.get());
        if let Ok(pool) = pool.build() {
            return pool.install(|| targets.par_bridge().try_for_each_init(|| None, compare));
        }
        // If the system refuses threads, this one does the work.
        let mut block = None;
        targets.try_for_each(|rows| compare(&mut block, rows))
    }

    /// Compares all queries with some targets, in place of those that were compared before in the same memory.
    fn compare(
        &self,
        queries: &Queries,
        block: &mut Option<Block>,
        rows: &RecordBatch,
    ) -> Result<(), DatasetError> {
        let packed = Block::pack(self.targets, rows, self.metric, block.take(), self.stop)?;
        let (mut products, mut found) = (Vec::new(), Vec::new());
        // Each thread begins with other queries, so that they seldom wait for the same lock.
        let thread = rayon::current_thread_index().unwrap_or(0);
        let first = thread * queries.chunks() / self.threads;
        for chunk in (first..queries.chunks()).chain(0..first) {
            StoreError::check(self.stop)?;
            self.compare_chunk(queries, chunk, &packed, &mut products, &mut found);
        }
        *block = Some(packed);
        Ok(())
    }

    /// Compares a chunk of queries with a block of targets.
    fn compare_chunk(
        &self,
        queries: &Queries,
        chunk: usize,
        block: &Block,
        products: &mut Vec<f32>,
        found: &mut Vec<(f32, usize)>,
    ) {
        let dim = self.targets.dim();
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
            self.add(queries, first + row, block, products, found, nearest);
        }
    }

    /// Adds the targets of a block to the nearest of a query, given its products with them.
    fn add(
        &self,
        queries: &Queries,
        query: usize,
        block: &Block,
        products: &[f32],
        found: &mut Vec<(f32, usize)>,
        nearest: &mut BinaryHeap<Hit>,
    ) {
        let square = queries.squares[query];
        let reach = self.metric.reach(square, block.longest);
        let error = self.error() * reach + f64::from(f32::MIN_POSITIVE) * (1.0 + square);
        let least = least(nearest, self.top);
        let least = least.map_or(self.least, |least| least.max(self.least));
        let limit = self.metric.product(least, square) - error;
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
        if let Some(offset) = self.same {
            found.retain(|&(_, at)| {
                block.keys[at].0 != queries.keys[query].0.wrapping_add_signed(offset)
            });
        }
        if self.no_self {
            let of = |at: usize| (queries.keys[query].0, block.digests[at]);
            found.retain(|&(_, at)| !queries.digests.contains(&of(at)));
        }
        if is_exact && found.len() > self.top {
            let descending = |one: &(f32, usize), other: &(f32, usize)| other.0.total_cmp(&one.0);
            let (_, &mut (product, _), _) = found.select_nth_unstable_by(self.top - 1, descending);
            let limit = (f64::from(product) - 2.0 * error) as f32;
            found.retain(|&(product, _)| product >= limit);
        }
        let dim = self.targets.dim();
        let vector = &queries.values[query * dim..(query + 1) * dim];
        for &(_, at) in found.iter() {
            let target = &block.values[at * dim..(at + 1) * dim];
            let squares = [square, block.squares[at]];
            let nearness = self.metric.nearness([vector, target], squares);
            if nearness >= self.least {
                add(nearest, Hit::new(nearness, block.keys[at]), self.top);
            }
        }
    }

    /// The rounding errors of a product relative to its reach: those of its sum, and of scaling, limits and biases.
    fn error(&self) -> f64 {
        product_error(self.targets.dim()) + 8.0 * f64::from(f32::EPSILON)
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
