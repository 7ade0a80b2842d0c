//! Layer normalisation (Ba et al. 2016, arXiv:1607.06450).

use std::ops::Range;

use crate::simd::dispatch::dispatch;
use crate::simd::{Scalar, Simd};
use crate::{Isa, Rows, RowsMut};

/// Normalises each row to mean 0 and variance 1, then scales and shifts its channels.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// `(width)`
    pub weight: Vec<f32>,
    /// `(width)`
    pub bias: Vec<f32>,
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// Normalises the rows of `x` to those of `out`, both `(rows, width)`.
    pub fn apply(&self, isa: Isa, x: Rows<'_>, out: &mut RowsMut<'_>) {
        let width = self.weight.len();
        assert_eq!(
            (x.width(), out.width(), self.bias.len(), out.rows()),
            (width, width, width, x.rows()),
            "the shapes fit"
        );
        let norm = self;
        if out.is_in_tiles() {
            dispatch!(isa, apply_to_tiles(norm: &LayerNorm, x: Rows<'_>, out: &RowsMut<'_>));
            return;
        }
        let rows = x.rows();
        let (from, to) = ((x.first(), width), (out.first(), width));
        dispatch!(isa, apply(norm: &LayerNorm, rows: usize, from: (*const f32, usize), to: (*mut f32, usize)));
    }

    /// Normalises some columns of each row in place: those from `column` on, as many as the width.
    pub fn apply_in_place(&self, isa: Isa, rows: &mut RowsMut<'_>, column: usize) {
        let (width, stride) = (self.weight.len(), rows.width());
        assert!(
            column + width <= stride && self.bias.len() == width,
            "the shapes fit"
        );
        // Not past the end if there are no rows.
        let (norm, first) = (self, rows.first().wrapping_add(column));
        let (from, to, rows) = ((first.cast_const(), stride), (first, stride), rows.rows());
        dispatch!(isa, apply(norm: &LayerNorm, rows: usize, from: (*const f32, usize), to: (*mut f32, usize)));
    }
}

/// Normalises rows, which are a stride apart.
#[inline(always)]
unsafe fn apply<S: Simd>(
    norm: &LayerNorm,
    rows: usize,
    (from, from_stride): (*const f32, usize),
    (to, to_stride): (*mut f32, usize),
) {
    for row in 0..rows {
        unsafe {
            let (from, to) = (from.add(row * from_stride), to.add(row * to_stride));
            let store = |at, v| S::store(to.add(at), v);
            normalise::<S>(norm, from, store, |at, v| Scalar::store(to.add(at), v));
        }
    }
}

/// Normalises rows to tiles.
#[inline(always)]
unsafe fn apply_to_tiles<S: Simd>(norm: &LayerNorm, x: Rows<'_>, out: &RowsMut<'_>) {
    for row in 0..x.rows() {
        unsafe {
            let half = |at| out.half(row, at);
            let store = |at, v| S::store_bf16(half(at), v);
            normalise::<S>(norm, x.at(row), store, |at, v| {
                Scalar::store_bf16(half(at), v);
            });
        }
    }
}

/// Normalises a row and stores it, vector by vector and then value by value.
#[inline(always)]
unsafe fn normalise<S: Simd>(
    norm: &LayerNorm,
    from: *const f32,
    store: impl Fn(usize, S::V),
    store_one: impl Fn(usize, [f32; 1]),
) {
    let width = norm.weight.len();
    let whole = width / S::LANES * S::LANES;
    unsafe {
        let sum = sum::<S>(from, 0..whole) + sum::<Scalar>(from, whole..width);
        let mean = sum / width as f32;
        let squares =
            squares::<S>(from, mean, 0..whole) + squares::<Scalar>(from, mean, whole..width);
        // A variance beyond f32 gives NaN: by 1/∞, the row would become the bias, without a sign that it is lost.
        let scale = 1.0 / (squares / width as f32 + norm.eps).sqrt() + squares * 0.0;
        scaled::<S>(norm, from, store, (mean, scale), 0..whole);
        scaled::<Scalar>(norm, from, store_one, (mean, scale), whole..width);
    }
}

/// The number of independent sums, so that additions do not wait for each other.
const CHAINS: usize = 4;

/// Returns the sum of the values.
#[inline(always)]
unsafe fn sum<S: Simd>(from: *const f32, range: Range<usize>) -> f32 {
    unsafe {
        let mut sums = [S::splat(0.0); CHAINS];
        for (turn, at) in range.step_by(S::LANES).enumerate() {
            let sum = &mut sums[turn % CHAINS];
            *sum = S::add(*sum, S::load(from.add(at)));
        }
        total::<S>(sums)
    }
}

/// Returns the sum of squared deviations from `mean`.
#[inline(always)]
unsafe fn squares<S: Simd>(from: *const f32, mean: f32, range: Range<usize>) -> f32 {
    unsafe {
        let mut sums = [S::splat(0.0); CHAINS];
        for (turn, at) in range.step_by(S::LANES).enumerate() {
            let apart = S::sub(S::load(from.add(at)), S::splat(mean));
            let sum = &mut sums[turn % CHAINS];
            *sum = S::mul_add(apart, apart, *sum);
        }
        total::<S>(sums)
    }
}

#[inline(always)]
unsafe fn total<S: Simd>(sums: [S::V; CHAINS]) -> f32 {
    unsafe { S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]))) }
}

#[inline(always)]
unsafe fn scaled<S: Simd>(
    norm: &LayerNorm,
    from: *const f32,
    store: impl Fn(usize, S::V),
    (mean, scale): (f32, f32),
    range: Range<usize>,
) {
    unsafe {
        for at in range.step_by(S::LANES) {
            let apart = S::sub(S::load(from.add(at)), S::splat(mean));
            let weight = S::load(norm.weight.as_ptr().add(at));
            let bias = S::load(norm.bias.as_ptr().add(at));
            let v = S::mul_add(S::mul(apart, S::splat(scale)), weight, bias);
            store(at, v);
        }
    }
}
