//! Where and how a model computes.

use std::str::FromStr;

use plmkit_cpu::{Isa, Multiply};

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

impl Setup {
    /// The instruction set of plmkit's own kernels, where they compute on `device`.
    pub(crate) fn isa(&self, device: tch::Device) -> Option<Isa> {
        match self.kernels {
            _ if device != tch::Device::Cpu => None,
            Kernels::Best => Some(Isa::best()),
            Kernels::Own(isa) => Some(isa),
            Kernels::Libtorch => None,
        }
    }

    /// The type in which plmkit's own kernels multiply.
    pub(crate) fn multiply(&self) -> Multiply {
        match self.dtype {
            Dtype::F32 | Dtype::F16 => Multiply::F32,
            Dtype::Bf16 => Multiply::Bf16,
            Dtype::Int8 => Multiply::Int8,
        }
    }

    /// The name of what computes on `device`.
    pub(crate) fn kernels_on(&self, device: tch::Device) -> String {
        match self.isa(device) {
            Some(isa) => isa.for_weights(self.multiply()).to_string(),
            None => "libtorch".to_owned(),
        }
    }

    /// The type in which `device` does compute: plmkit's own kernels multiply f32, and bfloat16 where the CPU does.
    pub(crate) fn dtype_on(&self, device: tch::Device) -> Dtype {
        match (self.isa(device), self.dtype) {
            (Some(_), Dtype::F16) => Dtype::F32,
            (Some(isa), Dtype::Bf16) if !isa.has_bf16() => Dtype::F32,
            (_, dtype) => dtype,
        }
    }
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
#[error("expected auto, portable, avx2, avx512, avx512_vnni, avx512_bf16 or libtorch")]
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
