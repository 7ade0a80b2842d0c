//! Instruction sets.

use strum::VariantArray;

use crate::{Dtype, cpu};

/// An instruction set with kernels, the best last.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Isa {
    /// Any CPU.
    Portable,
    /// Any CPU of aarch64, 8 lanes.
    Neon,
    /// [`Neon`](Self::Neon) with `FEAT_DotProd`: dot products of 8-bit integers.
    NeonDot,
    /// [`Neon`](Self::Neon) with `FEAT_I8MM` and `FEAT_BF16`: products of matrices of 8-bit integers and bfloat16.
    NeonMatrix,
    /// x86-64 with AVX2 and FMA, 8 lanes.
    Avx2,
    /// [`Avx2`](Self::Avx2) with AVX-VNNI: dot products of 8-bit integers in vectors of 256 bits.
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ and VL, 16 lanes.
    Avx512,
    /// [`Avx512`](Self::Avx512) with AVX512-VNNI: dot products of 8-bit integers.
    Avx512Vnni,
    /// [`Avx512Vnni`](Self::Avx512Vnni) with AVX512-BF16: dot products of bfloat16.
    Avx512Bf16,
    /// [`Avx512Bf16`](Self::Avx512Bf16) with AMX: products of tiles of bfloat16 and 8-bit integers.
    Amx,
}

impl Isa {
    /// Returns the best instruction set of this CPU.
    pub fn best() -> Self {
        // CPUs of Intel multiply bfloat16 in vectors at half the rate of f32, and in tiles at seven times that rate.
        let is_slow = |isa: &Self| *isa == Self::Avx512Bf16 && cpu::is_intel();
        let mut fast = Self::available().filter(|isa| !is_slow(isa));
        fast.next_back().unwrap_or(Self::Portable)
    }

    /// Returns the instruction sets of this CPU, the best last.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::VARIANTS
            .iter()
            .copied()
            .filter(|isa| isa.is_available())
    }

    /// Whether this CPU has the instruction set.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Neon | Self::NeonDot | Self::NeonMatrix => false,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::AvxVnni => Self::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx512Vnni => {
                Self::Avx512.is_available() && is_x86_feature_detected!("avx512vnni")
            }
            Self::Avx512Bf16 => {
                Self::Avx512Vnni.is_available() && is_x86_feature_detected!("avx512bf16")
            }
            Self::Amx => Self::Avx512Bf16.is_available() && crate::amx::is_available(),
        }
    }

    /// Whether this CPU has the instruction set.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonMatrix => {
                use std::arch::is_aarch64_feature_detected as has;
                has!("i8mm") && has!("bf16")
            }
            _ => false,
        }
    }

    /// Whether this CPU has the instruction set, and the system does not let this process use it.
    pub fn is_withheld(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let is_supported = self == Self::Amx && crate::amx::is_supported();
        #[cfg(not(target_arch = "x86_64"))]
        let is_supported = false;
        is_supported && !self.is_available()
    }

    /// Returns the least instruction set with the same results for weights of a type, to the bit.
    #[must_use]
    pub fn for_weights(self, dtype: Dtype) -> Self {
        match dtype {
            // Sums of integers are the same by all instructions. With int8, attention is in bfloat16 if the CPU supports it.
            Dtype::Int8 if self.attends_in_bf16() => self,
            Dtype::Bf16 if self.has_bf16() => self,
            _ if matches!(self, Self::NeonDot | Self::NeonMatrix) => Self::Neon,
            _ if self == Self::AvxVnni => Self::Avx2,
            _ => self.min(Self::Avx512),
        }
    }

    /// Whether the instruction set multiplies bfloat16. The others widen weights to f32.
    pub fn has_bf16(self) -> bool {
        self == Self::NeonMatrix || self.attends_in_bf16()
    }

    /// Whether the instruction set has attention in bfloat16. That of the others is in f32.
    pub fn attends_in_bf16(self) -> bool {
        matches!(self, Self::Avx512Bf16 | Self::Amx)
    }
}
