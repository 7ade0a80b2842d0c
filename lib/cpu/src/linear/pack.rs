//! Packs weights from the bytes of a file into panels.

use std::ops::Range;

use super::quantized::{self, Form, GROUP};
use super::{VECTORS, Weights, bf16, columns, row_at};
use crate::simd::Simd;
use crate::simd::dispatch::dispatch;
use crate::{Dtype, Isa};

/// The values of a row that are packed at once: a group of 8-bit integers.
pub(super) const BLOCK: usize = GROUP;

/// Converts stored little-endian values of a float type to f32, which is exact.
///
/// # Panics
/// If `to` has another number of values, or for integers.
#[inline(always)]
pub fn widen(dtype: Dtype, bytes: &[u8], to: &mut [f32]) {
    assert_eq!(bytes.len(), to.len() * dtype.bytes(), "as many values");
    let halves = bytes
        .chunks_exact(2)
        .map(|bytes| u32::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    match dtype {
        Dtype::F32 => {
            for (to, bytes) in to.iter_mut().zip(bytes.chunks_exact(4)) {
                *to = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Dtype::F16 => {
            for (to, half) in to.iter_mut().zip(halves) {
                *to = from_f16(half);
            }
        }
        Dtype::Bf16 => {
            for (to, half) in to.iter_mut().zip(halves) {
                *to = f32::from_bits(half << 16);
            }
        }
        Dtype::Int8 | Dtype::Fp8 => panic!("weights are stored as wider floats"),
    }
}

/// Converts the bits of an f16 without a branch, so that loops are vectorised.
#[inline(always)]
fn from_f16(half: u32) -> f32 {
    /// The exponent bias is 15 in f16 and 127 in f32.
    const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    const NOT_FINITE: u32 = 0x7c00;
    let (sign, magnitude) = ((half & 0x8000) << 16, half & 0x7fff);
    let finite = (f32::from_bits(magnitude << 13) * REBIAS).to_bits();
    let other = magnitude << 13 | 0x7f80_0000;
    let magnitude = if magnitude < NOT_FINITE {
        finite
    } else {
        other
    };
    f32::from_bits(sign | magnitude)
}

/// Outputs of a dense layer that are packed together.
#[derive(Debug)]
pub struct Panel<'a> {
    isa: Isa,
    inputs: usize,
    /// The places of its columns among those of all panels.
    places: Range<usize>,
    /// All rows of gated weights.
    gated: Option<usize>,
    buffer: PanelBuffer<'a>,
}

/// The memory of a panel.
#[derive(Debug)]
pub(super) enum PanelBuffer<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [u16]),
    Int8(quantized::PanelBuffer<'a>),
}

impl Weights {
    /// Returns the panels. Different threads can pack them.
    pub fn panels(&mut self) -> Vec<Panel<'_>> {
        let (isa, inputs, outputs) = (self.isa, self.inputs, self.outputs);
        let (columns, gated) = (columns(isa), self.gated.then_some(outputs));
        let buffers: Vec<PanelBuffer<'_>> = match &mut self.panels {
            super::Panels::F32(all) => {
                let panels = all.chunks_exact_mut(columns * inputs);
                panels.map(PanelBuffer::F32).collect()
            }
            super::Panels::Bf16(all) => {
                let panels = all.chunks_exact_mut(columns * bf16::padded(inputs));
                panels.map(PanelBuffer::Bf16).collect()
            }
            super::Panels::Int8(all) => all.buffers(isa, inputs).map(PanelBuffer::Int8).collect(),
        };
        let panels = buffers.into_iter().enumerate();
        panels
            .map(|(panel, buffer)| Panel {
                isa,
                inputs,
                places: panel * columns..outputs.min((panel + 1) * columns),
                gated,
                buffer,
            })
            .collect()
    }
}

impl Panel<'_> {
    /// Returns the rows of the matrix that the panel contains, column by column.
    pub fn outputs(&self) -> impl Iterator<Item = usize> + use<> {
        let (gated, columns) = (self.gated, columns(self.isa));
        let places = self.places.clone();
        places.map(move |place| row_at(place, gated, columns))
    }

    /// Packs the rows of [`outputs`](Self::outputs), each with its type.
    ///
    /// # Panics
    /// If their number or length is wrong.
    pub fn pack(&mut self, rows: &[(Dtype, &[u8])]) {
        assert_eq!(rows.len(), self.places.len(), "a panel is whole");
        for (stored, bytes) in rows {
            assert_eq!(bytes.len(), self.inputs * stored.bytes(), "a row is whole");
        }
        let panel = self;
        dispatch!(panel.isa, pack(panel: &mut Panel<'_>, rows: &[(Dtype, &[u8])]));
    }
}

/// Packs block by block of all rows, so that reads and writes stay in the first-level cache.
#[inline(always)]
unsafe fn pack<S: Simd>(panel: &mut Panel<'_>, rows: &[(Dtype, &[u8])]) {
    /// The most columns of an instruction set.
    const MAX_COLUMNS: usize = 32;
    let (columns, inputs) = (VECTORS * S::LANES, panel.inputs);
    // The values that are multiplied together, and those of a word.
    let (together, in_word) = match &panel.buffer {
        PanelBuffer::F32(_) => (1, 1),
        PanelBuffer::Bf16(_) => (bf16::together(panel.isa), 2),
        PanelBuffer::Int8(_) => (Form::for_isa(panel.isa).together, 4),
    };
    let mut values = [0f32; BLOCK];
    // (columns, BLOCK): a word or two have the values that are multiplied together. Columns without a row stay zero.
    let mut words = [0u32; MAX_COLUMNS * BLOCK];
    for begin in (0..inputs).step_by(BLOCK) {
        let count = BLOCK.min(inputs - begin);
        values[count..].fill(0.0);
        for (column, (stored, bytes)) in rows.iter().enumerate() {
            let width = stored.bytes();
            let bytes = &bytes[begin * width..(begin + count) * width];
            widen(*stored, bytes, &mut values[..count]);
            let words = &mut words[column * BLOCK..(column + 1) * BLOCK];
            match &mut panel.buffer {
                PanelBuffer::F32(_) => {
                    for (word, value) in words.iter_mut().zip(&values) {
                        *word = value.to_bits();
                    }
                }
                PanelBuffer::Bf16(_) => bf16::pairs(&values, words),
                PanelBuffer::Int8(buffer) => {
                    let place = begin / BLOCK * columns + column;
                    let integers = buffer.quantize(place, &values[..count]);
                    if together >= in_word {
                        for (word, four) in words.iter_mut().zip(integers.chunks_exact(4)) {
                            let four = [four[0], four[1], four[2], four[3]];
                            *word = u32::from_le_bytes(four.map(i8::cast_unsigned));
                        }
                    } else {
                        let to = &mut buffer.weights[begin * columns..];
                        for (k, &integer) in integers[..count].iter().enumerate() {
                            to[(k / together * columns + column) * together + k % together] =
                                integer;
                        }
                    }
                }
            }
        }
        let count = count.div_ceil(in_word);
        let to: *mut f32 = match &mut panel.buffer {
            PanelBuffer::F32(to) => to[begin * columns..].as_mut_ptr(),
            PanelBuffer::Bf16(to) => to[begin * columns..].as_mut_ptr().cast(),
            PanelBuffer::Int8(buffer) if together >= in_word => {
                buffer.weights[begin * columns..].as_mut_ptr().cast()
            }
            PanelBuffer::Int8(_) => continue,
        };
        // SAFETY: a panel has whole words of every input for all columns.
        unsafe { turn::<S>(&words, count, together > in_word, to) }
    }
}

/// Transposes `(columns, BLOCK)` to the first `count` rows of `(BLOCK, columns)`, or of `(BLOCK/2, columns, 2)`.
#[inline(always)]
unsafe fn turn<S: Simd>(words: &[u32], count: usize, is_paired: bool, to: *mut f32) {
    if is_paired {
        for (column, words) in words.chunks(BLOCK).take(VECTORS * S::LANES).enumerate() {
            for (k, &word) in words.iter().enumerate().take(count) {
                let pair = k / 2 * VECTORS * S::LANES + column;
                unsafe { *to.add(2 * pair + k % 2) = f32::from_bits(word) }
            }
        }
        return;
    }
    for first in (0..count).step_by(4) {
        for vector in 0..VECTORS {
            unsafe {
                let from = words.as_ptr().add(vector * S::LANES * BLOCK + first);
                let four = S::columns(from.cast(), BLOCK);
                for (i, column) in four.into_iter().enumerate().take(count - first) {
                    let row = (first + i) * VECTORS;
                    S::store(to.add((row + vector) * S::LANES), column);
                }
            }
        }
    }
}
