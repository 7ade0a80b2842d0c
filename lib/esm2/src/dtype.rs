//! The types in which a model computes.

use serde::{Deserialize, Serialize};
use tch::Kind;

/// The type of the weights and of what GEMMs and attention read.
///
/// The residual stream, `LayerNorm`, rotary angles, softmax sums, pooling, the final `LayerNorm` and the heads are in
/// f32 whatever it is.
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
    /// 8-bit integers for the linear maps of the layers, weights and inputs, with scales for groups of 128 along the sum;
    /// attention is in bfloat16 where the CPU computes that, and in f32 elsewhere.
    Int8,
}

impl Dtype {
    pub(crate) fn kind(self) -> Kind {
        match self {
            // What surrounds the integers is f32.
            Self::F32 | Self::Int8 => Kind::Float,
            Self::F16 => Kind::Half,
            Self::Bf16 => Kind::BFloat16,
        }
    }
}
