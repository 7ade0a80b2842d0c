//! libtorch's name of a type.

use plmkit_esm2::Dtype;
use tch::Kind;

/// Returns the kind of weights, and of the inputs of matrix products and attention, of a model of `dtype`.
pub(crate) fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        // Everything around the integers is f32.
        Dtype::F32 | Dtype::Int8 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::Bf16 => Kind::BFloat16,
    }
}
