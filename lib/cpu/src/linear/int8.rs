//! Products in [8-bit integers](super::quantized). Sums of a group are exact. They are scaled and added in f32.

use std::ops::Range;

use super::amx::Bytes;
use super::product::{Finished, Multiplier, Place, Sums, products, room_for};
use super::quantized::{Form, GROUP, Panels, padded, quantize};
use super::{Converted, Epilogue, VECTORS, Weights, columns};
#[cfg(target_arch = "x86_64")]
use crate::amx::Amx;
use crate::amx::{SIDE, TileUnit};
#[cfg(target_arch = "x86_64")]
use crate::dot::{Avx2Pairs, Avx512Pairs, AvxVnni, Vnni};
use crate::dot::{Dot, PortableDot};
use crate::simd::{Portable, Simd};
use crate::tile::dot::tile;
use crate::{Isa, Rows, RowsMut};
#[cfg(target_arch = "aarch64")]
use crate::{
    dot::{Sdot, Smmla},
    simd::Neon,
};

/// Returns the bytes and scales of `rows` inputs, and the bytes of a panel.
pub(super) fn room(weights: &Weights, rows: usize) -> [usize; 3] {
    let (inputs, form) = (weights.inputs, Form::for_isa(weights.isa));
    let rows = room_for(rows, inputs, form.bytes, form.rows);
    [
        rows * padded(weights.isa, inputs) * form.bytes,
        rows * inputs.div_ceil(GROUP),
        columns(weights.isa) * padded(weights.isa, inputs) * form.wide_bytes,
    ]
}

/// See [`Weights::apply`].
pub(super) fn apply(
    panels: &Panels,
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
    converted: &mut Converted,
) {
    let [integers, scales, panel] = room(weights, x.rows());
    assert!(converted.integers.len() >= integers, "there is room");
    assert!(converted.scales.len() >= scales, "there is room");
    assert!(converted.wide_panel.len() >= panel, "there is room");
    let mut job = Job {
        panels,
        weights,
        x,
        epilogue,
        converted,
    };
    // SAFETY: the CPU has the instruction set of the weights, and the shapes were checked.
    unsafe { dispatched(&mut job, out) }
}

/// A product in 8-bit integers.
struct Job<'a> {
    panels: &'a Panels,
    weights: &'a Weights,
    x: Rows<'a>,
    epilogue: Epilogue<'a>,
    converted: &'a mut Converted,
}

#[cfg(target_arch = "x86_64")]
unsafe fn dispatched(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn tiles(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
        unsafe { multiply_tiles::<Amx>(job, out) }
    }
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
    unsafe fn vnni(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
        unsafe { multiply::<Vnni, 12, 12>(job, out) }
    }
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
        unsafe { multiply::<Avx512Pairs, 12, 12>(job, out) }
    }
    #[target_feature(enable = "avxvnni,avx2,fma")]
    unsafe fn avx_vnni(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
        unsafe { multiply::<AvxVnni, 6, 6>(job, out) }
    }
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
        unsafe { multiply::<Avx2Pairs, 6, 6>(job, out) }
    }
    unsafe {
        match job.weights.isa {
            Isa::Portable => multiply::<PortableDot<Portable>, 6, 6>(job, out),
            Isa::Neon | Isa::NeonDot | Isa::NeonMatrix => unreachable!("no such CPU has it"),
            Isa::Avx2 => avx2(job, out),
            Isa::AvxVnni => avx_vnni(job, out),
            Isa::Avx512 => avx512(job, out),
            Isa::Avx512Vnni | Isa::Avx512Bf16 => vnni(job, out),
            Isa::Amx => tiles(job, out),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn dispatched(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
    unsafe {
        match job.weights.isa {
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => multiply::<PortableDot<Neon>, 6, 6>(job, out),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => multiply::<Sdot, 6, 6>(job, out),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonMatrix => multiply::<Smmla, 6, 1>(job, out),
            _ => multiply::<PortableDot<Portable>, 6, 6>(job, out),
        }
    }
}

#[inline(always)]
unsafe fn multiply_tiles<U: TileUnit>(job: &mut Job<'_>, out: &mut RowsMut<'_>) {
    let bytes = Bytes {
        unit: U::start(),
        panels: job.panels,
        quantized: job.converted.integers.as_mut_ptr(),
        scales: job.converted.scales.as_mut_ptr(),
        inputs: job.weights.inputs,
    };
    unsafe { products::<U::F, _, SIDE>(bytes, job.weights, job.x, out, job.epilogue) }
}

#[inline(always)]
unsafe fn multiply<D: Dot, const ROWS: usize, const UNITS: usize>(
    job: &mut Job<'_>,
    out: &mut RowsMut<'_>,
) {
    const { assert!(UNITS * D::ROWS == ROWS, "sums are of whole tiles") };
    debug_assert_eq!(Form::by::<D>(ROWS), Form::for_isa(job.weights.isa));
    let integers = Integers::<D, UNITS> {
        panels: job.panels,
        quantized: job.converted.integers.as_mut_ptr(),
        scales: job.converted.scales.as_mut_ptr(),
        room: job.converted.wide_panel.as_mut_ptr().cast(),
        panel: std::ptr::null(),
        inputs: job.weights.inputs,
    };
    unsafe { products::<D::F, _, ROWS>(integers, job.weights, job.x, out, job.epilogue) }
}

/// Multiplies panels by rows of integers, in tiles of `UNITS` times [`Dot::ROWS`] rows.
struct Integers<'a, D: Dot, const UNITS: usize> {
    panels: &'a Panels,
    /// `(rows, padded inputs)`, [in the order of the instructions](Dot::row)
    quantized: *mut u8,
    /// `(rows, groups)`
    scales: *mut f32,
    room: *mut D::Weight,
    /// The loaded panel, in the instruction set's form.
    panel: *const D::Weight,
    inputs: usize,
}

impl<D: Dot, const UNITS: usize> Integers<'_, D, UNITS> {
    /// Returns the bytes of a row.
    fn stride(&self) -> usize {
        padded(Isa::Portable, self.inputs) * D::BYTES
    }

    fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }
}

impl<D: Dot, const ROWS: usize, const UNITS: usize> Multiplier<D::F, ROWS>
    for Integers<'_, D, UNITS>
{
    const BYTES: usize = D::BYTES;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        for (i, row) in range.enumerate() {
            unsafe {
                let (from, to) = (x.at(row), self.quantized.add(D::row(i, self.stride())));
                let scales = self.scales.add(i * self.groups());
                for (group, first) in (0..self.inputs).step_by(GROUP).enumerate() {
                    let count = GROUP.min(self.inputs - first);
                    let place = |at| (first + at) * D::BYTES * D::ROWS;
                    let store = |at, values| D::store(to.add(place(at)), values);
                    *scales.add(group) = quantize::<D::F>(from.add(first), count, count, store);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn load_panel(&mut self, panel: usize, _: usize, _: Range<usize>) {
        let values = VECTORS * D::F::LANES * padded(Isa::Portable, self.inputs);
        unsafe {
            let weights = self.panels.weights().add(panel * values);
            self.panel = D::widen(weights, values, self.room);
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: *mut Sums<D::F, ROWS>, _: &Finished<'_, D::F>) {
        let sums = unsafe { &mut *sums };
        let Place { row, panel, .. } = place;
        let (lanes, columns) = (D::F::LANES, VECTORS * D::F::LANES);
        let groups = self.groups();
        unsafe {
            let a = self.quantized.add(row * self.stride());
            let input_scales = self.scales.add(row * groups);
            let scales = self.panels.scales().add(panel * columns * groups);
            let compensation = self.panels.compensation().add(panel * columns * groups);
            *sums = [[D::F::splat(0.0); VECTORS]; ROWS];
            for group in 0..groups {
                let begin = group * GROUP;
                let steps = GROUP.min(self.inputs - begin).div_ceil(D::TOGETHER);
                let first = compensation.add(group * columns);
                let integers = tile::<D, UNITS, VECTORS>(
                    [[D::load(first), D::load(first.add(lanes))]; UNITS],
                    steps,
                    a.add(begin * D::BYTES * D::ROWS),
                    self.stride(),
                    self.panel.add(begin * columns),
                    columns * D::TOGETHER,
                );
                let scales = scales.add(group * columns);
                for (unit, [left, right]) in integers.into_iter().enumerate() {
                    let rows = D::to_f32(left).into_iter().zip(D::to_f32(right));
                    for (i, (left, right)) in rows.enumerate() {
                        let row = unit * D::ROWS + i;
                        let own = D::F::splat(*input_scales.add(row * groups + group));
                        for (v, integer) in [left, right].into_iter().enumerate() {
                            let scale = D::F::mul(own, D::F::load(scales.add(v * lanes)));
                            sums[row][v] = D::F::mul_add(integer, scale, sums[row][v]);
                        }
                    }
                }
            }
        }
    }
}
