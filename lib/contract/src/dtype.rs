//! Number types.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

/// A type of numbers: that of stored weights, and of the weights and inputs of matrix products and attention.
///
/// In every type of a computation, the residual stream, `LayerNorm`, rotary angles, softmax sums, pooling and the heads are
/// f32.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 single precision.
    #[default]
    F32,
    /// IEEE 754 half precision: 11 significant bits, up to 65504.
    F16,
    /// bfloat16: 8 significant bits, the range of f32.
    Bf16,
    /// 8-bit integers for weights and inputs of the dense layers, with a scale for each group of 128 along the sum. Attention
    /// is in bfloat16 if the CPU supports it, otherwise in f32.
    Int8,
    /// 8-bit floats, e4m3 (Micikevicius et al. 2022, arXiv:2209.05433), for the weights of the dense layers but that after attention,
    /// with a scale for each output channel, and for their inputs, with a scale for each token. Everything else as in bfloat16.
    Fp8,
}

impl Dtype {
    /// Whether its error depends on the model and the sequences, so that a run compares a sample with f32 first.
    pub const fn is_quantised(self) -> bool {
        matches!(self, Self::Int8 | Self::Fp8)
    }

    /// Returns the bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Int8 | Self::Fp8 => 1,
        }
    }
}

/// The stored type of vectors.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumMessage,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum StoreDtype {
    /// IEEE 754 single precision
    F32,
    /// IEEE 754 half precision: half the size, three significant decimal digits
    F16,
}

impl StoreDtype {
    /// Returns the Arrow type of one value.
    pub fn arrow(self) -> DataType {
        match self {
            Self::F32 => DataType::Float32,
            Self::F16 => DataType::Float16,
        }
    }

    /// Returns the bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}
