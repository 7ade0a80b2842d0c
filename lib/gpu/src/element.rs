//! The type of values between matrix products.

use std::ffi::CStr;

/// The type of values between matrix products. Kernels compute in f32 and round to this type when they store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit floating point.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Returns the bytes of a value.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Returns the compiler option that defines the type.
    pub(crate) const fn definition(self) -> &'static CStr {
        match self {
            Self::F32 => c"-DELEMENT=float",
            Self::F16 => c"-DELEMENT=f16",
            Self::Bf16 => c"-DELEMENT=bf16",
        }
    }
}
