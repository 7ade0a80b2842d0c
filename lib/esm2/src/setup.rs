//! Where and how a model computes.

use std::fmt;
use std::str::FromStr;

use plmkit_cpu::Isa;

use crate::{Device, Dtype};

/// Where and how a model computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// On what.
    pub device: Device,
    /// In what.
    pub dtype: Dtype,
    /// By what, on a CPU.
    pub kernels: Kernels,
}

/// What computes the layers on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// plmkit's own, of the best instruction set that the CPU has.
    #[default]
    Best,
    /// plmkit's own, of this instruction set.
    Own(Isa),
    /// libtorch's.
    Libtorch,
}

/// Not a name of kernels.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, portable, avx2, avx512, avx512_bf16 or libtorch")]
pub struct ParseKernelsError;

impl FromStr for Kernels {
    type Err = ParseKernelsError;

    fn from_str(text: &str) -> Result<Self, ParseKernelsError> {
        match text {
            "auto" => Ok(Self::Best),
            "libtorch" => Ok(Self::Libtorch),
            isa => isa.parse().map(Self::Own).map_err(|()| ParseKernelsError),
        }
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("auto"),
            Self::Own(isa) => isa.fmt(f),
            Self::Libtorch => f.write_str("libtorch"),
        }
    }
}
