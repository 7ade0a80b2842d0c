//! Dense layers: `x·Wᵀ + b` and what becomes of it, tile by tile.

mod bf16;
mod f32;
mod int8;
mod pack;
mod product;

use crate::aligned::{Aligned, OutOfMemory};
use crate::dispatch::dispatch;
use crate::simd::Simd;
use crate::{Isa, Rows, RowsMut};

use product::{Add, Gelu, Store, products};

pub use pack::{Panel, StoredType};

/// Vectors of columns in a tile.
const VECTORS: usize = 2;

/// The weights of a dense layer, `(out, in)`, packed for an instruction set in panels of as many outputs as a tile has
/// columns; the last one is filled up with zeros.
#[derive(Debug)]
pub struct Weights {
    isa: Isa,
    inputs: usize,
    outputs: usize,
    panels: Panels,
    /// Filled up with zeros like the panels.
    bias: Vec<f32>,
}

#[derive(Debug)]
enum Panels {
    /// `(in, columns)` each.
    F32(Aligned),
    /// `(in/2, columns, 2)` each, bfloat16.
    Bf16(Aligned<u16>),
    Int8(int8::Panels),
}

/// The type in which weights and inputs are multiplied; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// f32.
    F32,
    /// bfloat16, to which inputs are rounded.
    Bf16,
    /// 8-bit integers, to which inputs are scaled and rounded. Groups of 128 along the sum have scales of their own.
    Int8,
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

/// Memory for some rows of inputs in the type in which they are multiplied.
#[derive(Debug, Default)]
pub struct Converted {
    bf16: Aligned<u16>,
    int8: int8::Quantized,
}

impl Converted {
    /// Makes room for `rows` of what `weights` are multiplied with.
    pub fn grow(&mut self, weights: &Weights, rows: usize) -> Result<(), OutOfMemory> {
        match weights.panels {
            Panels::F32(_) => Ok(()),
            Panels::Bf16(_) => self.bf16.grow(bf16::values(weights.inputs, rows)),
            Panels::Int8(_) => self.int8.grow(weights, rows),
        }
    }
}

impl Weights {
    /// Room for weights of `inputs` values and as many outputs as `bias` has. All are zeros until the [panels](Self::panels) are packed.
    ///
    /// # Panics
    /// If this CPU has no `isa`, or that does not multiply in this type.
    pub fn zeros(
        isa: Isa,
        multiply: Multiply,
        inputs: usize,
        bias: &[f32],
    ) -> Result<Self, OutOfMemory> {
        assert!(isa.is_available(), "{isa} is not available");
        let outputs = bias.len();
        let padded = outputs.next_multiple_of(columns(isa));
        let mut padded_bias = bias.to_vec();
        padded_bias.resize(padded, 0.0);
        Ok(Self {
            isa,
            inputs,
            outputs,
            panels: match multiply {
                Multiply::F32 => Panels::F32(Aligned::zeros(padded * inputs)?),
                Multiply::Bf16 => {
                    assert!(isa.has_bf16(), "{isa} multiplies no bfloat16");
                    Panels::Bf16(Aligned::zeros(padded * bf16::padded(inputs))?)
                }
                Multiply::Int8 => Panels::Int8(int8::Panels::zeros(padded, inputs)?),
            },
            bias: padded_bias,
        })
    }

    /// Packs `weight`, `(outputs, inputs)` row by row in memory, and `bias`, `(outputs)`.
    ///
    /// # Panics
    /// If `weight` has not as many values; as [`zeros`](Self::zeros).
    pub fn pack(
        isa: Isa,
        multiply: Multiply,
        weight: &[f32],
        bias: &[f32],
    ) -> Result<Self, OutOfMemory> {
        let inputs = weight.len() / bias.len();
        assert_eq!(weight.len(), inputs * bias.len(), "a matrix is whole");
        let bytes: Vec<u8> = weight
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let rows: Vec<_> = bytes
            .chunks_exact(inputs * size_of::<f32>())
            .map(|row| (StoredType::F32, row))
            .collect();
        let mut weights = Self::zeros(isa, multiply, inputs, bias)?;
        for mut panel in weights.panels() {
            panel.pack(&rows[panel.outputs()]);
        }
        Ok(weights)
    }

    /// The type in which they are multiplied.
    pub fn multiply(&self) -> Multiply {
        match self.panels {
            Panels::F32(_) => Multiply::F32,
            Panels::Bf16(_) => Multiply::Bf16,
            Panels::Int8(_) => Multiply::Int8,
        }
    }

    /// Values of an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// `then` of `x·Wᵀ + b` for each row of `x`, `(rows, inputs)`, to `out`, `(rows, outputs)`. `converted` has grown for
    /// these weights and as many rows, or is not there: then inputs are multiplied in f32, by weights of f32 or bfloat16.
    ///
    /// The result of a row depends on that row alone, to the bit.
    ///
    /// # Panics
    /// If the shapes do not fit, or nothing is there to convert inputs to 8-bit integers.
    pub fn apply(
        &self,
        x: Rows<'_>,
        out: &mut RowsMut<'_>,
        then: Then,
        converted: Option<&mut Converted>,
    ) {
        assert_eq!(
            (x.width(), out.width(), out.rows()),
            (self.inputs, self.outputs, x.rows()),
            "the shapes fit"
        );
        if x.rows() == 0 {
            return;
        }
        match &self.panels {
            Panels::F32(panels) => {
                let job = Job {
                    panels,
                    weights: self,
                    x,
                };
                match then {
                    Then::Store => dispatch!(self.isa, store(job: Job<'_>, out: &mut RowsMut<'_>)),
                    Then::Gelu => dispatch!(self.isa, gelu(job: Job<'_>, out: &mut RowsMut<'_>)),
                    Then::Add => dispatch!(self.isa, add(job: Job<'_>, out: &mut RowsMut<'_>)),
                }
            }
            #[cfg(target_arch = "x86_64")]
            Panels::Bf16(panels) => {
                let converted = converted.map(|converted| &mut converted.bf16[..]);
                bf16::apply(panels, self, x, out, then, converted);
            }
            #[cfg(not(target_arch = "x86_64"))]
            Panels::Bf16(_) => unreachable!("no other CPU multiplies bfloat16"),
            Panels::Int8(panels) => {
                let converted = converted.expect("there is memory for integers");
                int8::apply(panels, self, x, out, then, &mut converted.int8);
            }
        }
    }
}

/// Columns of a tile.
fn columns(isa: Isa) -> usize {
    VECTORS
        * match isa {
            Isa::Portable | Isa::Avx2 => 8,
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 => 16,
        }
}

/// A product in f32.
#[derive(Clone, Copy)]
struct Job<'a> {
    panels: &'a [f32],
    weights: &'a Weights,
    x: Rows<'a>,
}

macro_rules! finished {
    ($name:ident, $finish:ty) => {
        #[inline(always)]
        unsafe fn $name<S: Simd>(job: Job<'_>, out: &mut RowsMut<'_>) {
            let Job { panels, weights, x } = job;
            // As many rows as the registers hold.
            unsafe {
                if S::LANES == 16 {
                    products::<S, $finish, _, 12>(f32::InF32::new(panels), weights, x, out);
                } else {
                    products::<S, $finish, _, 6>(f32::InF32::new(panels), weights, x, out);
                }
            }
        }
    };
}

finished!(store, Store);
finished!(gelu, Gelu);
finished!(add, Add);
