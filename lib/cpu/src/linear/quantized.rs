//! Weights and inputs as 8-bit integers, with a scale for each group of [`GROUP`] values along the sum.
//!
//! The scale of a group is its largest magnitude over 127 (for weights, that of a column), so that an outlier reduces the
//! precision of its group only.

use super::columns;
use crate::Isa;
use crate::aligned::{Aligned, OutOfMemory};
use crate::amx::{self, SIDE, TileUnit};
#[cfg(target_arch = "x86_64")]
use crate::dot::{Avx2Pairs, Avx512Pairs, AvxVnni, Vnni};
use crate::dot::{Dot, PortableDot};
#[cfg(target_arch = "aarch64")]
use crate::dot::{Sdot, Smmla};
use crate::simd::{Portable, Simd};

/// The values of a group.
pub(super) const GROUP: usize = 128;
/// The largest magnitude of an integer: -128 is not used.
const LARGEST: f32 = 127.0;
/// A group with smaller values becomes zeros.
const LEAST: f32 = 1e-30;

/// Weights of a dense layer, panel by panel.
#[derive(Debug)]
pub(super) struct Panels {
    /// `(in/TOGETHER, columns, TOGETHER)` each.
    weights: Aligned<i8>,
    /// `(groups, columns)` each.
    scales: Aligned,
    /// The initial sums of a group, which compensate the zero point of inputs: `(groups, columns)` each.
    compensation: Aligned<i32>,
}

/// Returns the inputs of a row, padded to vectors or tiles.
pub(super) fn padded(isa: Isa, inputs: usize) -> usize {
    inputs.next_multiple_of(if isa == Isa::Amx { amx::STEP } else { 16 })
}

/// The form of inputs and weights for an instruction set: see [`Dot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) together: usize,
    pub(super) bytes: usize,
    /// Bytes of a widened weight; none if weights are not widened.
    pub(super) wide_bytes: usize,
    zero_point: i32,
    /// The rows of a tile.
    pub(super) rows: usize,
}

impl Form {
    pub(super) fn for_isa(isa: Isa) -> Self {
        match isa {
            Isa::Portable | Isa::Neon => Self::by::<PortableDot<Portable>>(6),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Self::by::<Avx2Pairs>(6),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => Self::by::<AvxVnni>(6),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Self::by::<Avx512Pairs>(12),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni | Isa::Avx512Bf16 => Self::by::<Vnni>(12),
            Isa::Amx => Self {
                together: 4,
                bytes: 1,
                wide_bytes: 0,
                zero_point: 0,
                rows: SIDE,
            },
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => Self::by::<Sdot>(6),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonMatrix => Self::by::<Smmla>(6),
            _ => unreachable!("no such CPU has it"),
        }
    }

    pub(super) const fn by<D: Dot>(rows: usize) -> Self {
        Self {
            together: D::TOGETHER,
            bytes: D::BYTES,
            wide_bytes: if size_of::<D::Weight>() == 1 {
                0
            } else {
                size_of::<D::Weight>()
            },
            zero_point: D::ZERO_POINT,
            rows,
        }
    }
}

impl Panels {
    /// Panels of zeros for whole panels of `outputs`.
    pub(super) fn zeros(isa: Isa, outputs: usize, inputs: usize) -> Result<Self, OutOfMemory> {
        let groups = inputs.div_ceil(GROUP);
        Ok(Self {
            weights: Aligned::zeros(outputs * padded(isa, inputs))?,
            scales: Aligned::zeros(outputs * groups)?,
            compensation: Aligned::zeros(outputs * groups)?,
        })
    }

    /// Returns the weights.
    pub(super) fn weights(&self) -> *const i8 {
        self.weights.as_ptr()
    }

    /// Returns the scales.
    pub(super) fn scales(&self) -> *const f32 {
        self.scales.as_ptr()
    }

    /// Returns the initial sums of groups.
    pub(super) fn compensation(&self) -> *const i32 {
        self.compensation.as_ptr()
    }

    /// Returns the memory of each panel.
    pub(super) fn buffers(
        &mut self,
        isa: Isa,
        inputs: usize,
    ) -> impl Iterator<Item = PanelBuffer<'_>> {
        let (columns, zero_point) = (columns(isa), Form::for_isa(isa).zero_point);
        let groups = columns * inputs.div_ceil(GROUP);
        let panels = self.weights.chunks_exact_mut(columns * padded(isa, inputs));
        let scales = self.scales.chunks_exact_mut(groups);
        let compensation = self.compensation.chunks_exact_mut(groups);
        let buffers = panels.zip(scales).zip(compensation);
        buffers.map(move |((weights, scales), compensation)| PanelBuffer {
            weights,
            scales,
            compensation,
            zero_point,
        })
    }
}

/// The memory of a panel.
#[derive(Debug)]
pub(super) struct PanelBuffer<'a> {
    pub(super) weights: &'a mut [i8],
    scales: &'a mut [f32],
    compensation: &'a mut [i32],
    zero_point: i32,
}

impl PanelBuffer<'_> {
    /// Converts a group of weights to integers and stores its scale at `place`.
    #[inline(always)]
    pub(super) fn quantize(&mut self, place: usize, weights: &[f32]) -> [i8; GROUP] {
        /// Adding it leaves an integer in the last bits, rounded like [`Simd::round`].
        const SHIFT: f32 = 12_582_912.0;
        let (inverse, scale) = scale(largest(weights));
        let mut integers = [0; GROUP];
        // A group with NaN becomes zeros with the scale NaN.
        if inverse.is_finite() {
            for (integer, weight) in integers.iter_mut().zip(weights) {
                *integer = (weight * inverse + SHIFT).to_bits() as i8;
            }
        }
        let sum: i32 = integers.iter().copied().map(i32::from).sum();
        self.scales[place] = scale;
        self.compensation[place] = -self.zero_point * sum;
        integers
    }
}

/// Returns the largest magnitude. It is not finite if a value is not.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    // Magnitudes have the order of their bits, and infinity and NaN are the largest.
    let magnitudes = values.iter().map(|value| value.abs().to_bits());
    f32::from_bits(magnitudes.fold(0, u32::max))
}

/// Returns the factor from values to integers for a largest magnitude, and the factor back: NaN if it is not finite.
#[inline(always)]
fn scale(largest: f32) -> (f32, f32) {
    if !largest.is_finite() {
        (f32::NAN, f32::NAN)
    } else if largest < LEAST {
        (0.0, 0.0)
    } else {
        (LARGEST / largest, largest / LARGEST)
    }
}

/// Converts `count` values of a group of a row to integers, and stores them, with zeros up to `whole`, vector by vector. Returns their scale.
#[inline(always)]
pub(super) unsafe fn quantize<S: Simd>(
    from: *const f32,
    count: usize,
    whole: usize,
    store: impl Fn(usize, S::V),
) -> f32 {
    unsafe {
        let mut most = S::splat(0.0);
        let mut not_finite = S::splat(0.0);
        for at in (0..count).step_by(S::LANES) {
            let values = S::load_some(from.add(at), count - at);
            most = S::max(most, S::abs(values));
            // Zero, or NaN if a value is not finite.
            not_finite = S::add(not_finite, S::sub(values, values));
        }
        let (inverse, scale) = scale(S::largest(most) + S::sum(not_finite));
        for at in (0..whole).step_by(S::LANES) {
            let values = S::load_some(from.wrapping_add(at), count.saturating_sub(at));
            store(at, S::round(S::mul(values, S::splat(inverse))));
        }
        scale
    }
}

/// Does the same with values of bfloat16 in some tiles beside each other.
#[inline(always)]
pub(super) unsafe fn quantize_tiles<U: TileUnit>(
    from: *const u16,
    tiles: usize,
    to: *mut u8,
) -> f32 {
    unsafe {
        let (inverse, scale) = scale(U::largest(from, tiles));
        U::quantize(from, tiles, inverse, to);
        scale
    }
}
