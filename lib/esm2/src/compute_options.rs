//! Options of a computation.

use std::str::FromStr;

use plmkit_cpu::{Isa, Multiply};

use crate::device::Opened;
use crate::{Device, Dtype};

/// Options of a computation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComputeOptions {
    /// The device.
    pub device: Device,
    /// The type; `None` for the most exact one that is fast on the device.
    pub dtype: Option<Dtype>,
    /// The kernels of a CPU.
    pub kernels: Kernels,
    /// Whether to measure the kinds of work of a GPU, which costs a little time.
    pub profile: bool,
}

impl ComputeOptions {
    /// Returns the plan for an opened device.
    pub(crate) fn plan_for(&self, opened: &Opened) -> ComputePlan {
        let own = match self.kernels {
            _ if opened.device != tch::Device::Cpu => None,
            Kernels::Best | Kernels::Onednn => Some(Isa::best()),
            Kernels::Own(isa) => Some(isa),
            Kernels::Libtorch => None,
        };
        let dtype = dtype(self.dtype, own, opened.capability);
        ComputePlan {
            device: opened.device,
            capability: opened.capability,
            own,
            fused: self.kernels != Kernels::Libtorch,
            onednn: own.is_some() && self.kernels.onednn(dtype, Isa::has_bf16_tiles()),
            dtype,
        }
    }
}

/// [`ComputeOptions`] resolved for a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputePlan {
    /// The device.
    pub(crate) device: tch::Device,
    /// The compute capability of a GPU.
    pub(crate) capability: Option<(i32, i32)>,
    /// On a CPU, the instruction set of plmkit's kernels; `None` for libtorch.
    pub(crate) own: Option<Isa>,
    /// Whether oneDNN computes the matrix products of plmkit's CPU kernels.
    pub(crate) onednn: bool,
    /// On a GPU, whether to use plmkit's kernels between matrix products and attention.
    pub(crate) fused: bool,
    /// The type.
    pub(crate) dtype: Dtype,
}

impl ComputePlan {
    /// Returns the type of matrix products in plmkit's CPU kernels.
    pub(crate) fn multiply(&self) -> Multiply {
        match self.dtype {
            Dtype::F32 | Dtype::F16 => Multiply::F32,
            Dtype::Bf16 => Multiply::Bf16,
            Dtype::Int8 => Multiply::Int8,
        }
    }
}

/// Returns the type that a device uses for the type `asked`. plmkit's `own` kernels for a CPU support f32, int8 and, if the CPU
/// does, bfloat16. GPUs support f16, and bfloat16 from compute capability 8.0.
fn dtype(asked: Option<Dtype>, own: Option<Isa>, capability: Option<(i32, i32)>) -> Dtype {
    match (asked, own, capability) {
        (None, _, Some(_)) => Dtype::F16,
        (None, _, None) | (Some(Dtype::F16), Some(_), _) => Dtype::F32,
        (Some(Dtype::Bf16), Some(isa), _) if !isa.has_bf16() => Dtype::F32,
        (Some(Dtype::Bf16), _, Some(capability)) if capability < (8, 0) => Dtype::F32,
        (Some(dtype), ..) => dtype,
    }
}

/// The kernels that compute the layers on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// plmkit's kernels for the best instruction set of the CPU, or [`Onednn`](Self::Onednn) on a CPU with AMX.
    #[default]
    Best,
    /// plmkit's kernels for this instruction set.
    Own(Isa),
    /// plmkit's kernels for the best instruction set of the CPU; in bfloat16, matrix products of oneDNN, which is part of libtorch.
    Onednn,
    /// libtorch's kernels.
    Libtorch,
}

impl Kernels {
    /// Whether oneDNN computes matrix products in the type `dtype`. `tiles` says whether the CPU multiplies tiles of bfloat16:
    /// oneDNN does, plmkit's kernels do not.
    fn onednn(self, dtype: Dtype, tiles: bool) -> bool {
        dtype == Dtype::Bf16 && (self == Self::Onednn || tiles && self == Self::Best)
    }
}

/// Text is not a name of kernels.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected auto, portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, onednn or libtorch"
)]
pub struct ParseKernelsError;

impl FromStr for Kernels {
    type Err = ParseKernelsError;

    fn from_str(text: &str) -> Result<Self, ParseKernelsError> {
        match text {
            "auto" => Ok(Self::Best),
            "onednn" => Ok(Self::Onednn),
            "libtorch" => Ok(Self::Libtorch),
            isa => isa.parse().map(Self::Own).map_err(|_| ParseKernelsError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onednn_multiplies_bfloat16_where_the_cpu_has_tiles() {
        let own = Kernels::Own(Isa::Avx512Bf16);
        for (kernels, dtype, tiles, expected) in [
            (Kernels::Best, Dtype::Bf16, true, true),
            (Kernels::Best, Dtype::Bf16, false, false),
            (Kernels::Best, Dtype::Int8, true, false),
            (own, Dtype::Bf16, true, false),
            (Kernels::Onednn, Dtype::Bf16, false, true),
            (Kernels::Onednn, Dtype::F32, true, false),
        ] {
            let shown = format!("{kernels:?} {dtype} {tiles}");
            assert_eq!(kernels.onednn(dtype, tiles), expected, "{shown}");
        }
    }

    #[test]
    fn the_type_is_one_that_the_device_supports() {
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
