//! Options of a computation.

use std::path::Path;
use std::str::FromStr;

use plmkit_contract::Dtype;
use plmkit_cpu::{CPU_DTYPES, Isa};
use plmkit_kit::{Exit, Fault};

use crate::config::ModelConfig;
use crate::cuda;
use crate::cuda::interface::OpeningGpu;
use crate::device::Device;
use crate::error::EsmError;

/// Options of a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeOptions {
    pub device: Device,
    /// The type; `None` for the most exact one that is fast on the device.
    pub dtype: Option<Dtype>,
    /// The kernels of a CPU.
    pub kernels: Kernels,
    /// Whether to measure the kinds of work of a GPU, which costs a little time.
    pub profile: bool,
}

impl ComputeOptions {
    /// Asks the driver for the device. Returns whether it is the CPU. Fails if the device does not compute in the type.
    pub fn is_cpu(&self) -> Result<bool, EsmError> {
        Ok(self.resolve()?.gpu.is_none())
    }

    /// Fails if no device of the kind that is asked for computes in the type. What is here does not count: the run may be on another
    /// node.
    pub fn check_kind(&self) -> Result<(), EsmError> {
        match self.device {
            Device::Auto => Ok(()),
            Device::Cpu => self.check(),
            Device::Cuda(_) | Device::All => {
                let newest = (i32::MAX, 0);
                self.dtype_for(None, Some(newest)).map(drop)
            }
        }
    }

    /// Checks that the device is usable and computes in the type, as far as possible without using it.
    pub fn check(&self) -> Result<(), EsmError> {
        let resolved = self.resolve()?;
        match resolved.isa {
            Some(_) => Ok(()),
            None => cuda::check(resolved.gpu.as_ref()),
        }
    }

    /// Asks the driver for the device. Fails if the device does not compute in the type.
    pub(crate) fn resolve(&self) -> Result<Resolved, EsmError> {
        let gpu = self.device.gpu()?;
        let isa = match self.kernels {
            _ if gpu.is_some() => None,
            Kernels::Auto => Some(Isa::best()),
            Kernels::Isa(isa) => Some(isa),
            Kernels::Libtorch => None,
        };
        let capability = gpu.as_ref().map(|gpu| gpu.capability);
        let dtype = self.dtype_for(isa, capability)?;
        let kernels = match (&gpu, isa) {
            (Some(_), _) if self.kernels != Kernels::Libtorch => "cuda".to_owned(),
            (None, Some(isa)) => isa.for_weights(dtype).to_string(),
            _ => "libtorch".to_owned(),
        };
        Ok(Resolved {
            isa,
            gpu,
            dtype,
            kernels,
        })
    }

    /// Returns the type of the computation. Fails if the device does not compute in the one that is asked for, or if the kernels that are
    /// asked for are of another device. `cpu_isa` is the instruction set of plmkit's kernels for a CPU, `capability` the compute
    /// capability of a GPU.
    fn dtype_for(
        &self,
        cpu_isa: Option<Isa>,
        capability: Option<(i32, i32)>,
    ) -> Result<Dtype, EsmError> {
        use Dtype::{Bf16, F16, F32, Fp8};
        if let (Kernels::Isa(isa), Some(_)) = (self.kernels, capability) {
            let what = "for a CPU; expected auto or libtorch on a GPU, or --device cpu";
            return Err(Fault::usage(format!("--kernels {isa}: {what}")).into());
        }
        let known: &[Dtype] = match (cpu_isa, capability) {
            (_, Some(capability)) if capability < (8, 0) => &[F32, F16],
            (_, Some(capability)) if capability < (8, 9) => &[F32, F16, Bf16],
            (_, Some(_)) | (None, None) => &[F32, F16, Bf16, Fp8],
            (Some(_), None) => &CPU_DTYPES,
        };
        let exact_and_fast = capability.map_or(F32, |_| F16);
        let dtype = self.dtype.unwrap_or(exact_and_fast);
        if known.contains(&dtype) {
            return Ok(dtype);
        }
        let place = match (self.kernels, capability) {
            // Of a newer GPU it would be.
            (_, Some((major, minor))) if [Bf16, Fp8].contains(&dtype) => {
                format!("on this GPU of compute capability {major}.{minor}")
            }
            (_, Some(_)) => "on this GPU".to_owned(),
            (Kernels::Auto, None) => "on this CPU".to_owned(),
            (Kernels::Isa(isa), None) => format!("by --kernels {isa}"),
            (Kernels::Libtorch, None) => "by --kernels libtorch".to_owned(),
        };
        let known: Vec<String> = known.iter().map(Dtype::to_string).collect();
        let known = known.join(" or ");
        let what = format!("--dtype {dtype}: not computed {place}; expected {known}");
        Err(Fault::usage(what).into())
    }
}

/// Refuses the model at `path` if its matrices are not multiplied in a type.
pub fn check_widths(path: &Path, config: &ModelConfig, dtype: Dtype) -> Result<(), EsmError> {
    /// Of what libtorch multiplies in fp8.
    const MULTIPLE: usize = 16;
    let mut widths = [
        ("hidden_size", config.hidden),
        ("intermediate_size", config.intermediate),
    ]
    .into_iter();
    let odd = widths.find(|(_, width)| !width.is_multiple_of(MULTIPLE));
    let Some((name, width)) = odd.filter(|_| dtype == Dtype::Fp8) else {
        return Ok(());
    };
    let problem = format!(
        "--dtype fp8: expected a multiple of {MULTIPLE} for {name}, found {width}; --dtype bf16 takes any"
    );
    Err(EsmError::of_file(Exit::Usage, path, problem))
}

/// What computes, and in which type.
pub(crate) struct Resolved {
    /// The instruction set, if plmkit's kernels for a CPU compute. libtorch computes on a CPU without it and a GPU.
    pub(crate) isa: Option<Isa>,
    pub(crate) gpu: Option<OpeningGpu>,
    pub(crate) dtype: Dtype,
    /// What computes the layers.
    pub(crate) kernels: String,
}

/// The kernels that compute the layers on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// plmkit's kernels for the best instruction set of the CPU.
    #[default]
    Auto,
    /// plmkit's kernels for this instruction set.
    Isa(Isa),
    /// libtorch's kernels.
    Libtorch,
}

impl FromStr for Kernels {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "libtorch" => Ok(Self::Libtorch),
            isa => isa.parse().map(Self::Isa).map_err(|_| "expected auto, portable, neon, neon_dot, neon_matrix, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx or libtorch"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_the_device_does_not_compute_is_refused() {
        use Dtype::{Bf16, F16, F32, Fp8, Int8};
        let (turing, hopper) = (Some((7, 5)), Some((9, 0)));
        let (ampere, ada) = (Some((8, 6)), Some((8, 9)));
        let (auto, libtorch) = (Kernels::Auto, Kernels::Libtorch);
        let avx2 = Some(Isa::Avx2);
        let in_avx2 = Kernels::Isa(Isa::Avx2);
        for (asked, kernels, cpu_isa, capability, expected) in [
            (None, auto, avx2, None, Ok(F32)),
            (None, libtorch, None, None, Ok(F32)),
            (None, auto, None, turing, Ok(F16)),
            (Some(F32), auto, None, hopper, Ok(F32)),
            (Some(F16), libtorch, None, None, Ok(F16)),
            (Some(Bf16), auto, avx2, None, Ok(Bf16)),
            (Some(Bf16), auto, None, hopper, Ok(Bf16)),
            (Some(Int8), auto, avx2, None, Ok(Int8)),
            (
                Some(F16),
                auto,
                avx2,
                None,
                Err("f16: not computed on this CPU; expected f32 or bf16 or int8"),
            ),
            (
                Some(F16),
                in_avx2,
                avx2,
                None,
                Err("f16: not computed by --kernels avx2; expected f32 or bf16 or int8"),
            ),
            (
                Some(Int8),
                libtorch,
                None,
                None,
                Err("int8: not computed by --kernels libtorch; expected f32 or f16 or bf16 or fp8"),
            ),
            (
                Some(Bf16),
                auto,
                None,
                turing,
                Err(
                    "bf16: not computed on this GPU of compute capability 7.5; expected f32 or f16",
                ),
            ),
            (
                Some(Int8),
                auto,
                None,
                hopper,
                Err("int8: not computed on this GPU; expected f32 or f16 or bf16 or fp8"),
            ),
            (
                Some(Fp8),
                auto,
                None,
                ampere,
                Err(
                    "fp8: not computed on this GPU of compute capability 8.6; expected f32 or f16 or bf16",
                ),
            ),
            (
                Some(Fp8),
                auto,
                avx2,
                None,
                Err("fp8: not computed on this CPU; expected f32 or bf16 or int8"),
            ),
            (Some(Fp8), auto, None, ada, Ok(Fp8)),
            (Some(Fp8), libtorch, None, None, Ok(Fp8)),
        ] {
            let options = ComputeOptions {
                dtype: asked,
                kernels,
                ..ComputeOptions::default()
            };
            let found = options.dtype_for(cpu_isa, capability);
            let found = found.map_err(|error| error.to_string());
            let expected = expected.map_err(|what| format!("--dtype {what}"));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn kernels_of_a_cpu_are_refused_on_a_gpu() {
        let options = ComputeOptions {
            device: Device::Cuda(0),
            kernels: Kernels::Isa(Isa::Avx2),
            ..ComputeOptions::default()
        };
        for refused in [
            options.check_kind(),
            options.dtype_for(None, Some((9, 0))).map(drop),
        ] {
            assert_eq!(
                refused.unwrap_err().to_string(),
                "--kernels avx2: for a CPU; expected auto or libtorch on a GPU, or --device cpu"
            );
        }
    }
}
