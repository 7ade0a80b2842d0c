//! The types in which a model computes.

use serde::{Deserialize, Serialize};

/// The type of the weights and of the inputs of matrix products and attention.
///
/// The residual stream, `LayerNorm`, rotary angles, softmax sums, pooling and the heads are always f32.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
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
}
