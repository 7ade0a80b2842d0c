//! Products in bfloat16 with sums in f32.

use std::ops::Range;

use super::product::{Finished, Multiplier, Place, Sums, products};
use super::{Epilogue, VECTORS, Weights};
use crate::amx::SIDE;
use crate::dot::Dot;
use crate::simd::Simd;
use crate::tile::dot::tile;
use crate::{Isa, Rows, RowsMut};

/// Returns the rows of a tile.
pub(super) fn tile_rows(isa: Isa) -> usize {
    match isa {
        Isa::Amx => SIDE,
        Isa::NeonMatrix => 6,
        _ => 12,
    }
}

/// Returns the products that are added to a sum at once.
pub(super) fn together(isa: Isa) -> usize {
    if isa == Isa::NeonMatrix { 4 } else { 2 }
}

/// Returns the inputs of a row, padded to vectors of 32.
pub(super) fn padded(inputs: usize) -> usize {
    inputs.next_multiple_of(32)
}

/// Returns the values of memory for `rows` of `inputs`.
pub(super) fn values(isa: Isa, inputs: usize, rows: usize) -> usize {
    super::product::room_for(rows, inputs, size_of::<u16>(), tile_rows(isa)) * padded(inputs)
}

/// Rounds values, two in a word.
#[inline(always)]
pub(super) fn pairs(values: &[f32], words: &mut [u32]) {
    let bits = |value: f32| u32::from(half::bf16::from_f32(value).to_bits());
    for (word, pair) in words.iter_mut().zip(values.chunks_exact(2)) {
        *word = bits(pair[1]) << 16 | bits(pair[0]);
    }
}

/// See [`Weights::apply`].
pub(super) fn apply(
    panels: &[u16],
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
    converted: &mut [u16],
) {
    let room = values(weights.isa, weights.inputs, x.rows());
    assert!(converted.len() >= room, "there is room");
    assert!(weights.isa.has_bf16(), "the CPU multiplies bfloat16");
    // SAFETY: the CPU has the instruction set of the weights, and the shapes were checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        multiply(panels, weights, x, out, epilogue, converted);
    }
    #[cfg(target_arch = "aarch64")]
    unsafe {
        let rounded = Rounded::<crate::dot::Bfmmla, 1> {
            panels: panels.as_ptr(),
            converted: converted.as_mut_ptr().cast(),
            depth: padded(weights.inputs),
        };
        products::<crate::simd::Neon, _, 6>(rounded, weights, x, out, epilogue);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn multiply(
    panels: &[u16],
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
    converted: &mut [u16],
) {
    use super::amx::{Halves, UNUSED};
    use crate::amx::{Amx, TileUnit};
    use crate::dot::Avx512Bf16;
    use crate::simd::Avx512;
    let (panels, depth) = (panels.as_ptr(), padded(weights.inputs));
    let converted = converted.as_mut_ptr();
    unsafe {
        if weights.isa == Isa::Amx {
            let mut earlier = UNUSED;
            let halves = Halves {
                unit: Amx::start(),
                panels,
                converted,
                rows: std::ptr::null(),
                depth,
                earlier: &raw mut earlier,
            };
            products::<Avx512, _, SIDE>(halves, weights, x, out, epilogue);
        } else {
            let rounded = Rounded::<Avx512Bf16, 12> {
                panels,
                converted: converted.cast(),
                depth,
            };
            products::<Avx512, _, 12>(rounded, weights, x, out, epilogue);
        }
    }
}

/// Multiplies bfloat16 panels by rounded rows, in tiles of `UNITS` times [`Dot::ROWS`] rows.
struct Rounded<D: Dot, const UNITS: usize> {
    panels: *const D::Weight,
    /// `(rows, depth)`, [in the order of the instructions](Dot::row)
    converted: *mut u8,
    /// Inputs of a row, padded.
    depth: usize,
}

impl<D: Dot, const ROWS: usize, const UNITS: usize> Multiplier<D::F, ROWS> for Rounded<D, UNITS> {
    const BYTES: usize = D::BYTES;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        let stride = self.depth * D::BYTES;
        for (i, row) in range.enumerate() {
            unsafe {
                let (from, to) = (x.at(row), self.converted.add(D::row(i, stride)));
                for at in (0..self.depth).step_by(D::F::LANES) {
                    let left = x.width().saturating_sub(at);
                    let values = D::F::load_some(from.wrapping_add(at), left);
                    D::store(to.add(at * D::BYTES * D::ROWS), values);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: *mut Sums<D::F, ROWS>, _: &Finished<'_, D::F>) {
        let sums = unsafe { &mut *sums };
        let Place { row, panel, .. } = place;
        let (columns, stride) = (VECTORS * D::F::LANES, self.depth * D::BYTES);
        unsafe {
            let products = tile::<D, UNITS, VECTORS>(
                [[D::load([0; 16].as_ptr()); VECTORS]; UNITS],
                self.depth / D::TOGETHER,
                self.converted.add(row * stride),
                stride,
                self.panels.add(panel * columns * self.depth),
                columns * D::TOGETHER,
            );
            for (unit, [left, right]) in products.into_iter().enumerate() {
                let rows = D::to_f32(left).into_iter().zip(D::to_f32(right));
                for (i, (left, right)) in rows.enumerate() {
                    sums[unit * D::ROWS + i] = [left, right];
                }
            }
        }
    }
}
