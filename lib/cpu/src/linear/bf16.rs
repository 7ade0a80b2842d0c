//! Products in bfloat16 with sums in f32, by AVX512-BF16 or AMX.

use crate::Isa;
use crate::amx::SIDE;

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

#[cfg(target_arch = "x86_64")]
pub(super) use x86::apply;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::ops::Range;

    use super::{ROWS, padded, values};
    use crate::amx::{Amx, SIDE, TileUnit};
    use crate::linear::product::{Multiplier, Place, Sums, products};
    use crate::linear::tiles::Halves;
    use crate::linear::{Epilogue, VECTORS, Weights};
    use crate::simd::{Avx512, Simd};
    use crate::tile::bf16::tile;
    use crate::{Isa, Rows, RowsMut};

    /// See [`Weights::apply`].
    pub(in crate::linear) fn apply(
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

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn multiply(
        panels: &[u16],
        weights: &Weights,
        x: Rows<'_>,
        out: &mut RowsMut<'_>,
        epilogue: Epilogue,
        converted: &mut [u16],
    ) {
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
                let rounded = Rounded {
                    panels,
                    converted,
                    depth,
                };
                products::<Avx512, _, ROWS>(rounded, weights, x, out, epilogue);
            }
        }
    }

    /// Multiplies bfloat16 panels by rounded rows.
    struct Rounded {
        panels: *const u16,
        /// `(rows, depth)`
        converted: *mut u16,
        /// Inputs of a row, padded.
        depth: usize,
    }

    impl Multiplier<Avx512, ROWS> for Rounded {
        const BYTES: usize = size_of::<u16>();

        #[inline(always)]
        unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
            for (i, row) in range.enumerate() {
                unsafe {
                    let (from, to) = (x.at(row), self.converted.add(i * self.depth));
                    for at in (0..self.depth).step_by(16) {
                        let left = x.width().saturating_sub(at);
                        let values = Avx512::load_some(from.wrapping_add(at), left);
                        Avx512::store_bf16(to.add(at), values);
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn tile(&self, place: Place, sums: &mut Sums<Avx512, ROWS>) {
            let Place { row, panel, .. } = place;
            let columns = VECTORS * 16;
            unsafe {
                let a = self.converted.add(row * self.depth);
                let b = self.panels.add(panel * columns * self.depth);
                *sums = [[Avx512::splat(0.0); VECTORS]; ROWS];
                tile::<ROWS, VECTORS>(sums, self.depth / 2, a, self.depth, b, 2 * columns);
            }
        }
    }
}
