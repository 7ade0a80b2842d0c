//! Dense layers: `x·Wᵀ + b`, tile by tile.

mod amx;
mod bf16;
mod f32;
mod int8;
mod pack;
mod product;
mod quantized;

use crate::aligned::{Aligned, OutOfMemory};
use crate::rope::Turns;
use crate::simd::Simd;
use crate::simd::dispatch::dispatch;
use crate::tile::DEPTH;
use crate::{Dtype, Isa, Rows, RowsMut};

use f32::Source;
use product::products;

pub use pack::{Panel, widen};
pub(crate) use product::MOST_AMX_ROWS;

/// The types in which a CPU multiplies weights.
pub const CPU_DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::Int8];

/// Vectors of columns in a tile.
const VECTORS: usize = 2;

/// The weights of a dense layer, `(out, in)`, packed for an instruction set. A panel has as many outputs as a tile has columns;
/// the last panel is padded with zeros.
#[derive(Debug)]
pub struct Weights {
    isa: Isa,
    inputs: usize,
    outputs: usize,
    panels: Panels,
    /// In the order of the panels, and padded with zeros like them.
    bias: Vec<f32>,
    /// See [`gated`](Self::gated).
    gated: bool,
}

#[derive(Debug)]
enum Panels {
    /// `(in, columns)` each.
    F32(Aligned),
    /// `(in/2, columns, 2)` each, bfloat16; `(in/4, columns, 4)` for matrix products of NEON.
    Bf16(Aligned<u16>),
    Int8(quantized::Panels),
}

/// What a product does with `x·Wᵀ + b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue<'a> {
    /// Stores it.
    Store,
    /// Stores its GELU (by erf).
    Gelu,
    /// Stores `silu(gate)·up` of [gated](Weights::gated) weights.
    SwiGlu,
    /// Adds it to the output, times a factor.
    Add(f32),
    /// Turns it to queries, keys and values in strips.
    Attend(Turns<'a>),
}

/// Memory for input rows, or a panel of weights, converted to the type of products.
#[derive(Debug, Default)]
pub struct Converted {
    /// Whether products with bfloat16 weights are in f32 even if the CPU multiplies bfloat16.
    pub in_f32: bool,
    bf16: Aligned<u16>,
    panel: Aligned,
    /// `(rows, inputs)`, in the instruction set's form of 8-bit integers.
    integers: Aligned<u8>,
    /// `(rows, groups)` of the integers.
    scales: Aligned,
    /// A panel of 8-bit integers in the instruction set's form, if that is another one than in memory.
    wide_panel: Aligned<u8>,
}

impl Converted {
    /// Grows to `rows` inputs of `weights`.
    pub fn grow(&mut self, weights: &Weights, rows: usize) -> Result<(), OutOfMemory> {
        match weights.panels {
            Panels::F32(_) => Ok(()),
            Panels::Bf16(_) if self.widens(weights.isa) => {
                let panel = columns(weights.isa) * bf16::padded(weights.inputs);
                self.panel.grow(panel)
            }
            Panels::Bf16(_) => {
                let values = bf16::values(weights.isa, weights.inputs, rows);
                self.bf16.grow(values)
            }
            Panels::Int8(_) => {
                let [integers, scales, panel] = int8::room(weights, rows);
                self.integers.grow(integers)?;
                self.scales.grow(scales)?;
                self.wide_panel.grow(panel)
            }
        }
    }

    /// Whether bfloat16 weights are widened to f32.
    fn widens(&self, isa: Isa) -> bool {
        self.in_f32 || !isa.has_bf16()
    }
}

impl Weights {
    /// Returns zero weights, `(bias.len(), inputs)`, until the [panels](Self::panels) are packed.
    ///
    /// # Panics
    /// If this CPU does not have `isa`, or for a type that is not in [`CPU_DTYPES`].
    pub fn zeros(isa: Isa, dtype: Dtype, inputs: usize, bias: &[f32]) -> Result<Self, OutOfMemory> {
        assert!(isa.is_available(), "{isa} is not available");
        let outputs = bias.len();
        let padded = outputs.next_multiple_of(columns(isa));
        let mut padded_bias = bias.to_vec();
        padded_bias.resize(padded, 0.0);
        Ok(Self {
            isa,
            inputs,
            outputs,
            panels: match dtype {
                Dtype::F32 => Panels::F32(Aligned::zeros(padded * inputs)?),
                Dtype::Bf16 => Panels::Bf16(Aligned::zeros(padded * bf16::padded(inputs))?),
                Dtype::Int8 => Panels::Int8(quantized::Panels::zeros(isa, padded, inputs)?),
                Dtype::F16 | Dtype::Fp8 => panic!("no CPU kernel multiplies {dtype}"),
            },
            bias: padded_bias,
            gated: false,
        })
    }

    /// Returns the same weights, `(2·width, inputs)`, as those of a gate, `(width, inputs)`, above those of an input: a panel has a
    /// vector of gates and the vector of their inputs. The product has `width` outputs, by [`Epilogue::SwiGlu`] only. Panels are
    /// to be packed afterwards.
    ///
    /// # Panics
    /// If the last panel would not be whole.
    #[must_use]
    pub fn gated(mut self) -> Self {
        let whole = self.outputs.is_multiple_of(columns(self.isa));
        assert!(whole, "panels are whole");
        self.gated = true;
        let (columns, bias) = (columns(self.isa), std::mem::take(&mut self.bias));
        let places = 0..self.outputs;
        self.bias = places
            .map(|place| bias[row_at(place, Some(self.outputs), columns)])
            .collect();
        self
    }

    /// Whether the weights are [gated](Self::gated).
    pub fn is_gated(&self) -> bool {
        self.gated
    }

    /// Returns weights of the same shape with this bias, in the same memory, until the [panels](Self::panels) are packed again.
    ///
    /// # Panics
    /// If there are more or fewer outputs, or the weights are gated.
    #[must_use]
    pub fn reuse(mut self, bias: &[f32]) -> Self {
        assert!(bias.len() == self.outputs && !self.gated);
        self.bias[..bias.len()].copy_from_slice(bias);
        self
    }

    /// Packs `weight`, `(outputs, inputs)` row by row, and `bias`, `(outputs)`.
    ///
    /// # Panics
    /// If `weight` has another size; as [`zeros`](Self::zeros).
    pub fn pack(isa: Isa, dtype: Dtype, weight: &[f32], bias: &[f32]) -> Result<Self, OutOfMemory> {
        let inputs = weight.len() / bias.len();
        assert_eq!(weight.len(), inputs * bias.len(), "a matrix is whole");
        let bytes: Vec<u8> = weight
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let rows: Vec<_> = bytes
            .chunks_exact(inputs * size_of::<f32>())
            .map(|row| (Dtype::F32, row))
            .collect();
        let mut weights = Self::zeros(isa, dtype, inputs, bias)?;
        for mut panel in weights.panels() {
            let rows: Vec<_> = panel.outputs().map(|row| rows[row]).collect();
            panel.pack(&rows);
        }
        Ok(weights)
    }

    /// Returns the type of products, whose sums are f32. bfloat16 rounds inputs, if the CPU multiplies it: else weights are widened. 8-bit integers scale and round them, with a scale for
    /// each group of 128 along the sum.
    pub fn dtype(&self) -> Dtype {
        match self.panels {
            Panels::F32(_) => Dtype::F32,
            Panels::Bf16(_) => Dtype::Bf16,
            Panels::Int8(_) => Dtype::Int8,
        }
    }

    /// Whether products, not [in f32](Converted::in_f32), take rows in tiles.
    pub(crate) fn take_tiles(&self, in_f32: bool) -> bool {
        self.dtype() != Dtype::F32 && self.isa == Isa::Amx && !in_f32
    }

    /// Returns the rows that are multiplied together, or half as many.
    pub(crate) fn tile_rows(&self) -> usize {
        match self.panels {
            Panels::F32(_) => 12,
            Panels::Bf16(_) | Panels::Int8(_) => bf16::tile_rows(self.isa),
        }
    }

    /// Returns the values of an input row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the values of an output row.
    pub fn outputs(&self) -> usize {
        if self.gated {
            self.outputs / 2
        } else {
            self.outputs
        }
    }

    /// Applies `epilogue` to `x·Wᵀ + b` of each row of `x`, `(rows, inputs)`, and `out`, `(rows, outputs)`. `converted` has grown for
    /// these weights and rows; f32 needs none.
    ///
    /// The result of a row depends only on that row, to the bit.
    ///
    /// # Panics
    /// If the shapes do not match, or `converted` is missing.
    pub fn apply(
        &self,
        x: Rows<'_>,
        out: &mut RowsMut<'_>,
        epilogue: Epilogue<'_>,
        converted: Option<&mut Converted>,
    ) {
        assert_eq!(
            (x.width(), out.width(), out.rows()),
            (self.inputs, self.outputs(), x.rows()),
            "the shapes fit"
        );
        assert!(
            !x.is_in_tiles()
                || self.take_tiles(converted.as_ref().is_some_and(|converted| converted.in_f32)),
            "these products take tiles"
        );
        assert!(
            !out.is_in_tiles() || !matches!(epilogue, Epilogue::Add(_)),
            "nothing is added to tiles"
        );
        assert!(
            out.is_in_tiles() || !matches!(epilogue, Epilogue::Attend(_)),
            "attention reads tiles"
        );
        assert_eq!(
            epilogue == Epilogue::SwiGlu,
            self.gated,
            "the epilogue is that of the weights"
        );
        if x.rows() == 0 {
            return;
        }
        match &self.panels {
            Panels::F32(panels) => self.in_f32(Source::F32(panels), x, out, epilogue),
            Panels::Bf16(panels) => {
                let converted = converted.expect("there is memory for a panel");
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                if !converted.widens(self.isa) {
                    bf16::apply(panels, self, x, out, epilogue, &mut converted.bf16);
                    return;
                }
                let panel = columns(self.isa) * bf16::padded(self.inputs);
                let room = &mut converted.panel[..panel];
                let source = Source::Bf16(panels, bf16::together(self.isa), room);
                self.in_f32(source, x, out, epilogue);
            }
            Panels::Int8(panels) => {
                let converted = converted.expect("there is memory for integers");
                int8::apply(panels, self, x, out, epilogue, converted);
            }
        }
    }

    fn in_f32(
        &self,
        source: Source<'_>,
        x: Rows<'_>,
        out: &mut RowsMut<'_>,
        epilogue: Epilogue<'_>,
    ) {
        let weights = self;
        dispatch!(self.isa, in_f32(weights: &Weights, source: Source<'_>, x: Rows<'_>, out: &mut RowsMut<'_>, epilogue: Epilogue<'_>));
    }
}

/// Returns the row of a matrix at a place of its panels. In one of `gated` rows, half of the columns of a panel are gates.
fn row_at(place: usize, gated: Option<usize>, columns: usize) -> usize {
    let Some(rows) = gated else {
        return place;
    };
    let (panel, column, lanes) = (place / columns, place % columns, columns / 2);
    column / lanes * (rows / 2) + panel * lanes + column % lanes
}

/// Bounds the error of `x·w + b` in f32, relative to the product of the norms of `x` and `w`, `(inputs)` each, where `b` is zero.
///
/// Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1, for the sums of [`Weights::apply`].
pub fn product_error(inputs: usize) -> f64 {
    // A product, the sum of a part, the sum of the parts, and the bias.
    let roundings = 1 + DEPTH.min(inputs) + inputs.div_ceil(DEPTH) + 1;
    1.01 * roundings as f64 * f64::from(f32::EPSILON) / 2.0
}

/// Returns the columns of a tile.
fn columns(isa: Isa) -> usize {
    VECTORS
        * match isa {
            Isa::Portable
            | Isa::Neon
            | Isa::NeonDot
            | Isa::NeonMatrix
            | Isa::Avx2
            | Isa::AvxVnni => 8,
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => 16,
        }
}

#[inline(always)]
unsafe fn in_f32<S: Simd>(
    weights: &Weights,
    source: Source<'_>,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
) {
    let in_f32 = f32::InF32::new(source);
    // As many rows as the registers hold.
    if S::LANES == 16 {
        unsafe { products::<S, _, 12>(in_f32, weights, x, out, epilogue) }
    } else {
        unsafe { products::<S, _, 6>(in_f32, weights, x, out, epilogue) }
    }
}
