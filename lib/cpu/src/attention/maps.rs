//! Sums of attention maps over residues.

use std::ops::Range;

use super::packed::Packed;
use super::{AttentionHead, MOST_KEYS, MOST_ROWS, Scratch, f32};
use crate::simd::Simd;
use crate::simd::dispatch::dispatch;
use crate::{Isa, Rows, RowsMut};

/// Where the softmax weights of some queries of a head are added. Keys are the residues of the sequence, without `<cls>` and `<eos>`.
pub(crate) struct MapSums<'a> {
    /// The factor of the weights in `maps`.
    pub(crate) weight: f32,
    /// `(queries, residues)`: the weights are added.
    pub(crate) maps: RowsMut<'a>,
    /// `(queries)`: replaced by the sums of each query.
    pub(crate) rows: &'a mut [f32],
    /// `(residues)`: the sums over the queries are added.
    pub(crate) columns: &'a mut [f32],
}

/// Adds the softmax weights of `queries` in a head. `qkv`, `(length, 3·heads·dim)`, are the queries, keys and values of a sequence.
/// `scratch` has grown for the sequence.
///
/// # Panics
/// If the shapes do not match.
pub(crate) fn add_maps(
    isa: Isa,
    qkv: Rows<'_>,
    head: AttentionHead,
    queries: Range<usize>,
    mut sums: MapSums<'_>,
    scratch: &mut Scratch,
) {
    let (length, count) = (qkv.rows(), queries.len());
    assert_eq!(
        (
            sums.maps.rows(),
            sums.rows.len(),
            sums.maps.width(),
            sums.columns.len()
        ),
        (count, count, length - 2, length - 2),
        "the shapes fit"
    );
    assert!(
        3 * (head.number + 1) * head.dim <= qkv.width(),
        "there is such a head"
    );
    assert!(queries.end <= length, "the queries are of the sequence");
    assert!(scratch.holds(length, head.dim), "the scratch has grown");
    let (sums, queries) = (&mut sums, &queries);
    dispatch!(isa, add(qkv: Rows<'_>, head: AttentionHead, queries: &Range<usize>, sums: &mut MapSums<'_>, scratch: &mut Scratch));
}

#[inline(always)]
unsafe fn add<S: Simd>(
    qkv: Rows<'_>,
    head: AttentionHead,
    queries: &Range<usize>,
    sums: &mut MapSums<'_>,
    scratch: &mut Scratch,
) {
    let length = qkv.rows();
    let packed = unsafe { Packed::new::<S, f32::Products>(qkv, head, scratch) };
    let stride = length.next_multiple_of(MOST_KEYS);
    let mut weights = vec![0.0; MOST_ROWS * stride];
    let mut first = queries.start;
    while first < queries.end {
        let place = first - queries.start;
        unsafe {
            // The rows that are left over one by one.
            let mut each = [0.0; MOST_ROWS];
            let rows = if queries.end - first >= MOST_ROWS {
                each = packed.weights::<S, f32::Products, MOST_ROWS>(first, &mut weights, stride);
                MOST_ROWS
            } else {
                [each[0]] = packed.weights::<S, f32::Products, 1>(first, &mut weights, stride);
                1
            };
            for (row, sum) in each[..rows].iter().enumerate() {
                let residues = &weights[row * stride..][1..length - 1];
                let map = sums.maps.at(place + row);
                sums.rows[place + row] =
                    spread::<S>(residues, 1.0 / sum, sums.weight, map, sums.columns);
            }
            first += rows;
        }
    }
}

/// Adds weights, times `share`, to the sums of columns, and times `factor` too to a row of the map. Returns their sum.
#[inline(always)]
unsafe fn spread<S: Simd>(
    weights: &[f32],
    share: f32,
    factor: f32,
    map: *mut f32,
    columns: &mut [f32],
) -> f32 {
    let (count, columns) = (weights.len(), columns.as_mut_ptr());
    unsafe {
        let mut sum = S::splat(0.0);
        for at in (0..count).step_by(S::LANES) {
            let (map, columns, left) = (map.add(at), columns.add(at), count - at);
            let weights = S::mul(
                S::load_some(weights.as_ptr().add(at), left),
                S::splat(share),
            );
            sum = S::add(sum, weights);
            S::store_some(
                map,
                left,
                S::mul_add(weights, S::splat(factor), S::load_some(map, left)),
            );
            S::store_some(columns, left, S::add(S::load_some(columns, left), weights));
        }
        S::sum(sum)
    }
}
