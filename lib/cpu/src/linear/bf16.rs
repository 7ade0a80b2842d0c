//! Products in bfloat16 with sums in f32.

use std::ops::Range;

use super::product::{Multiplier, Place, Sums};
use super::{Epilogue, VECTORS, Weights};
use crate::amx::SIDE;
use crate::dot::Dot;
use crate::simd::Simd;
use crate::tile::dot::tile;
use crate::{Isa, Rows, RowsMut};

/// Returns the rows of a tile.
pub(super) fn tile_rows(isa: Isa) -> usize {
    if isa == Isa::Amx { SIDE } else { ROWS }
}

/// Rows of a tile in registers.
const ROWS: usize = 12;

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
    epilogue: Epilogue,
    converted: &mut [u16],
) {
    let room = values(weights.isa, weights.inputs, x.rows());
    assert!(converted.len() >= room, "there is room");
    assert!(weights.isa.has_bf16(), "the CPU multiplies bfloat16");
    // SAFETY: the CPU has the instruction set of the weights, and the shapes were checked.
    unsafe { multiply(panels, weights, x, out, epilogue, converted) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn multiply(
    panels: &[u16],
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue,
    converted: &mut [u16],
) {
    use super::product::products;
    use super::tiles::Halves;
    use crate::amx::{Amx, TileUnit};
    use crate::dot::Avx512Bf16;
    use crate::simd::Avx512;
    let (panels, depth) = (panels.as_ptr(), padded(weights.inputs));
    let converted = converted.as_mut_ptr();
    unsafe {
        if weights.isa == Isa::Amx {
            let halves = Halves {
                unit: Amx::start(),
                panels,
                converted,
                rows: std::ptr::null(),
                depth,
            };
            products::<Avx512, _, SIDE>(halves, weights, x, out, epilogue);
        } else {
            let rounded = Rounded::<Avx512Bf16> {
                panels,
                converted: converted.cast(),
                depth,
            };
            products::<Avx512, _, ROWS>(rounded, weights, x, out, epilogue);
        }
    }
}

/// Multiplies bfloat16 panels by rounded rows.
struct Rounded<D: Dot> {
    panels: *const D::Weight,
    /// `(rows, depth)`
    converted: *mut u8,
    /// Inputs of a row, padded.
    depth: usize,
}

impl<D: Dot<Sum = f32>, const ROWS: usize> Multiplier<D::F, ROWS> for Rounded<D> {
    const BYTES: usize = D::BYTES;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        for (i, row) in range.enumerate() {
            unsafe {
                let (from, to) = (x.at(row), self.converted.add(i * self.depth * D::BYTES));
                for at in (0..self.depth).step_by(D::F::LANES) {
                    let left = x.width().saturating_sub(at);
                    let values = D::F::load_some(from.wrapping_add(at), left);
                    D::store(to.add(at * D::BYTES), values);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: &mut Sums<D::F, ROWS>) {
        let Place { row, panel, .. } = place;
        let (columns, stride) = (VECTORS * D::F::LANES, self.depth * D::BYTES);
        unsafe {
            let products = tile::<D, ROWS, VECTORS>(
                [[D::load([0.0; 16].as_ptr()); VECTORS]; ROWS],
                self.depth / D::TOGETHER,
                self.converted.add(row * stride),
                stride,
                self.panels.add(panel * columns * self.depth),
                columns * D::TOGETHER,
            );
            for (sums, products) in sums.iter_mut().zip(products) {
                for (sum, products) in sums.iter_mut().zip(products) {
                    *sum = D::to_f32(products);
                }
            }
        }
    }
}
