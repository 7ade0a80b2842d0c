//! Instruction sets, and which of them this CPU has.

use std::fmt;
use std::str::FromStr;

use crate::Multiply;

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compiler makes of plain Rust.
    Portable,
    /// x86-64 with AVX2 and FMA, 8 lanes.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, 16 lanes.
    Avx512,
    /// The same with AVX512-VNNI: dot products of 8-bit integers.
    Avx512Vnni,
    /// The same with AVX512-BF16, too: dot products of bfloat16.
    Avx512Bf16,
}

impl Isa {
    /// All, the best last.
    pub const ALL: [Self; 5] = [
        Self::Portable,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Vnni,
        Self::Avx512Bf16,
    ];

    /// The best that this CPU has.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Those that this CPU has, the best last.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Whether this CPU has it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
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
        }
    }

    /// Whether this CPU has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// The least instruction set whose kernels compute the same for weights of that type, to the bit.
    #[must_use]
    pub fn for_weights(self, multiply: Multiply) -> Self {
        match multiply {
            // Sums of integers are the same with VNNI and without; attention beside them is in bfloat16 where that can be.
            Multiply::Int8 if self.has_bf16() => self,
            Multiply::F32 | Multiply::Int8 => self.min(Self::Avx512),
            Multiply::Bf16 => self,
        }
    }

    /// Whether it multiplies bfloat16.
    pub fn has_bf16(self) -> bool {
        self == Self::Avx512Bf16
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vnni => "avx512_vnni",
            Self::Avx512Bf16 => "avx512_bf16",
        })
    }
}

impl FromStr for Isa {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|isa| isa.to_string() == text).ok_or(())
    }
}
