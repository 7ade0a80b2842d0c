//! Where and how a model computes.

use std::str::FromStr;

use plmkit_cpu::{Isa, Multiply};

use crate::device::Opened;
use crate::{Device, Dtype};

/// Where and how a model computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComputeOptions {
    /// On what.
    pub device: Device,
    /// In what; `None` for the most exact that is fast on the device.
    pub dtype: Option<Dtype>,
    /// By what, on a CPU.
    pub kernels: Kernels,
    /// Whether a GPU is to tell what its time goes into, which costs it a little of that.
    pub profile: bool,
}

impl ComputeOptions {
    /// How a model computes on a device that was opened for it.
    pub(crate) fn plan_for(&self, opened: &Opened) -> ComputePlan {
        let own = match self.kernels {
            _ if opened.device != tch::Device::Cpu => None,
            Kernels::Best => Some(Isa::best()),
            Kernels::Own(isa) => Some(isa),
            Kernels::Libtorch => None,
        };
        ComputePlan {
            device: opened.device,
            capability: opened.capability,
            own,
            fused: self.kernels != Kernels::Libtorch,
            dtype: dtype(self.dtype, own, opened.capability),
        }
    }
}

/// How a model does compute: a [`ComputeOptions`], once it is known what the device can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputePlan {
    /// On what.
    pub(crate) device: tch::Device,
    /// Its compute capability, where it is a GPU.
    pub(crate) capability: Option<(i32, i32)>,
    /// By plmkit's own kernels of this instruction set, or by libtorch.
    pub(crate) own: Option<Isa>,
    /// On a GPU, by plmkit's own kernels between matrix products and attention, or by libtorch alone.
    pub(crate) fused: bool,
    /// In what.
    pub(crate) dtype: Dtype,
}

impl ComputePlan {
    /// The type in which plmkit's own kernels multiply.
    pub(crate) fn multiply(&self) -> Multiply {
        match self.dtype {
            Dtype::F32 | Dtype::F16 => Multiply::F32,
            Dtype::Bf16 => Multiply::Bf16,
            Dtype::Int8 => Multiply::Int8,
        }
    }
}

/// The type in which a device does compute what is asked for in `asked`: on a CPU plmkit's `own` kernels multiply f32, and
/// bfloat16 where the CPU does; a GPU has f16, and from compute capability 8.0 bfloat16.
fn dtype(asked: Option<Dtype>, own: Option<Isa>, capability: Option<(i32, i32)>) -> Dtype {
    match (asked, own, capability) {
        (None, _, Some(_)) => Dtype::F16,
        (None, _, None) | (Some(Dtype::F16), Some(_), _) => Dtype::F32,
        (Some(Dtype::Bf16), Some(isa), _) if !isa.has_bf16() => Dtype::F32,
        (Some(Dtype::Bf16), _, Some(capability)) if capability < (8, 0) => Dtype::F32,
        (Some(dtype), ..) => dtype,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_one_that_the_device_has() {
        let (turing, hopper) = (Some((7, 5)), Some((9, 0)));
        for (asked, own, capability, expected) in [
            (None, Some(Isa::Avx2), None, Dtype::F32),
            (None, None, None, Dtype::F32),
            (None, None, turing, Dtype::F16),
            (Some(Dtype::F32), None, hopper, Dtype::F32),
            (Some(Dtype::F16), Some(Isa::Avx512Bf16), None, Dtype::F32),
            (Some(Dtype::F16), None, None, Dtype::F16),
            (Some(Dtype::Bf16), Some(Isa::Avx512), None, Dtype::F32),
            (Some(Dtype::Bf16), Some(Isa::Avx512Bf16), None, Dtype::Bf16),
            (Some(Dtype::Bf16), None, turing, Dtype::F32),
            (Some(Dtype::Bf16), None, hopper, Dtype::Bf16),
            (Some(Dtype::Int8), Some(Isa::Portable), None, Dtype::Int8),
        ] {
            assert_eq!(
                dtype(asked, own, capability),
                expected,
                "{asked:?} {own:?} {capability:?}"
            );
        }
    }
}
