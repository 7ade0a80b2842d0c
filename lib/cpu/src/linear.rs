//! Dense layers: `x·Wᵀ + b` and what becomes of it, tile by tile.

use crate::activation::gelu;
use crate::aligned::{Aligned, OutOfMemory};
use crate::dispatch::dispatch;
use crate::simd::Simd;
use crate::tile::tile;
use crate::{Isa, Rows, RowsMut};

/// Bytes of input rows that stay in a core's cache while all of the weights pass by.
const INPUT_BYTES: usize = 448 << 10;

/// Vectors of columns in a tile.
const VECTORS: usize = 2;

/// The weights of a dense layer, `(out, in)`, packed for an instruction set: panels of as many outputs as a tile has
/// columns, each `(in, columns)`; the last one is filled up with zeros.
#[derive(Debug)]
pub struct Weights {
    isa: Isa,
    inputs: usize,
    outputs: usize,
    panels: Aligned,
    /// Filled up with zeros like the panels.
    bias: Aligned,
}

/// What is done with `x·Wᵀ + b` as it leaves the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is stored.
    Store,
    /// Its GELU (by erf) is stored.
    Gelu,
    /// It is added to what is there.
    Add,
}

impl Weights {
    /// Packs `weight`, `(outputs, inputs)` row by row, and `bias`, `(outputs)`.
    ///
    /// # Panics
    /// If `weight` has not as many values, or this CPU has no `isa`.
    pub fn pack(isa: Isa, weight: &[f32], bias: &[f32]) -> Result<Self, OutOfMemory> {
        let outputs = bias.len();
        let inputs = weight.len() / outputs;
        assert_eq!(weight.len(), inputs * outputs, "a matrix is whole");
        assert!(isa.is_available(), "{isa} is not available");
        let columns = columns(isa);
        let padded = outputs.next_multiple_of(columns);
        let mut panels = Aligned::zeros(padded * inputs)?;
        for (panel, rows) in panels
            .chunks_exact_mut(columns * inputs)
            .zip(weight.chunks(columns * inputs))
        {
            for (column, row) in rows.chunks_exact(inputs).enumerate() {
                for (k, &value) in row.iter().enumerate() {
                    panel[k * columns + column] = value;
                }
            }
        }
        let mut padded_bias = Aligned::zeros(padded)?;
        padded_bias[..outputs].copy_from_slice(bias);
        Ok(Self {
            isa,
            inputs,
            outputs,
            panels,
            bias: padded_bias,
        })
    }

    /// Values of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Values of an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// `then` of `x·Wᵀ + b` for each row of `x`, `(rows, inputs)`, to `out`, `(rows, outputs)`.
    ///
    /// The result of a row depends on that row alone, to the bit.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn apply(&self, x: Rows<'_>, out: &mut RowsMut<'_>, then: Then) {
        assert_eq!(
            (x.width(), out.width(), out.rows()),
            (self.inputs, self.outputs, x.rows()),
            "the shapes fit"
        );
        let weights = self;
        match then {
            Then::Store => {
                dispatch!(self.isa, store(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>))
            }
            Then::Gelu => {
                dispatch!(self.isa, store_gelu(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>))
            }
            Then::Add => {
                dispatch!(self.isa, add(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>))
            }
        }
    }
}

/// Columns of a tile.
fn columns(isa: Isa) -> usize {
    VECTORS
        * match isa {
            Isa::Portable | Isa::Avx2 => 8,
            Isa::Avx512 | Isa::Avx512Bf16 => 16,
        }
}

#[inline(always)]
unsafe fn store<S: Simd>(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>) {
    unsafe { apply::<S>(weights, x, out, |_, value| value) }
}

#[inline(always)]
unsafe fn store_gelu<S: Simd>(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>) {
    unsafe { apply::<S>(weights, x, out, |_, value| gelu::<S>(value)) }
}

#[inline(always)]
unsafe fn add<S: Simd>(weights: &Weights, x: Rows<'_>, out: &mut RowsMut<'_>) {
    unsafe {
        apply::<S>(weights, x, out, |there, value| {
            S::add(S::load(there), value)
        })
    }
}

/// Rows of a tile: as many as the registers hold.
#[inline(always)]
unsafe fn apply<S: Simd>(
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    then: impl Fn(*const f32, S::V) -> S::V + Copy,
) {
    unsafe {
        match S::LANES {
            16 => tiles::<S, 12>(weights, x, out, then),
            _ => tiles::<S, 6>(weights, x, out, then),
        }
    }
}

#[inline(always)]
unsafe fn tiles<S: Simd, const ROWS: usize>(
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    then: impl Fn(*const f32, S::V) -> S::V + Copy,
) {
    let (inputs, columns) = (weights.inputs, VECTORS * S::LANES);
    let rows = x.rows();
    let at_once = (INPUT_BYTES / size_of::<f32>() / inputs / ROWS).max(1) * ROWS;
    let mut edge = [0f32; 64];
    for first in (0..rows).step_by(at_once) {
        let last = rows.min(first + at_once);
        for (panel, column) in (0..weights.outputs).step_by(columns).enumerate() {
            let whole = column + columns <= weights.outputs;
            unsafe {
                let b = weights.panels.as_ptr().add(panel * columns * inputs);
                let bias: [S::V; VECTORS] = std::array::from_fn(|v| {
                    S::load(weights.bias.as_ptr().add(column + v * S::LANES))
                });
                for row in (first..last).step_by(ROWS) {
                    let mut sums = [bias; ROWS];
                    if row + ROWS <= last {
                        tile::<S, ROWS, VECTORS>(
                            &mut sums,
                            inputs,
                            x.at(row),
                            x.stride(),
                            b,
                            columns,
                        );
                    } else {
                        // One by one, in the same order.
                        for (i, sums) in sums.iter_mut().enumerate().take(last - row) {
                            let mut one = [*sums];
                            tile::<S, 1, VECTORS>(&mut one, inputs, x.at(row + i), 0, b, columns);
                            *sums = one[0];
                        }
                    }
                    for (i, sums) in sums.iter().enumerate().take(last - row) {
                        let to = out.at(row + i).add(column);
                        if whole {
                            for (v, &sum) in sums.iter().enumerate() {
                                let to = to.add(v * S::LANES);
                                S::store(to, then(to, sum));
                            }
                        } else {
                            let width = weights.outputs - column;
                            std::ptr::copy_nonoverlapping(to, edge.as_mut_ptr(), width);
                            for (v, &sum) in sums.iter().enumerate() {
                                let to = edge.as_mut_ptr().add(v * S::LANES);
                                S::store(to, then(to, sum));
                            }
                            std::ptr::copy_nonoverlapping(edge.as_ptr(), to, width);
                        }
                    }
                }
            }
        }
    }
}
