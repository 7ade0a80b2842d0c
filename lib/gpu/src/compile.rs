//! Compiles the kernels for a device.

use std::ffi::{CStr, CString};

use crate::nvrtc::{Program, supported};
use crate::source::SOURCE;
use crate::{Dtype, GpuError};

/// The types of values between matrix products. Kernels compute in f32 and round when they store.
pub const ELEMENTS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Returns the type of values between matrix products of a model of `dtype`.
pub fn element_of(dtype: Dtype) -> Dtype {
    match dtype {
        // Everything around integers is f32.
        Dtype::Int8 => Dtype::F32,
        Dtype::Fp8 => Dtype::Bf16,
        element => element,
    }
}

/// Returns the compiler options that define the types of a model.
pub(crate) fn definitions(dtype: Dtype) -> &'static [&'static CStr] {
    match dtype {
        Dtype::F16 => &[c"-DELEMENT=f16"],
        Dtype::Bf16 => &[c"-DELEMENT=bf16"],
        Dtype::F32 | Dtype::Int8 => &[c"-DELEMENT=float"],
        Dtype::Fp8 => &[c"-DELEMENT=bf16", c"-DFP8"],
    }
}

/// Compiled kernels.
#[derive(Clone, Debug)]
pub struct Image {
    /// Machine code, an ELF file, or PTX, which ends with a zero byte.
    pub code: Vec<u8>,
    /// The log of `ptxas`: registers, shared memory and spills of each kernel. Empty for PTX.
    pub log: String,
}

/// Compiles all kernels, which takes about a second. Needs NVRTC, but no GPU, driver or header.
///
/// The architecture is the compute capability without its dot: 90 is `sm_90`. For an architecture that NVRTC does not know, the result is PTX for the newest older one that it knows. The driver
/// compiles PTX when it loads it.
///
/// # Errors
/// [`GpuError::NoLibrary`] and [`GpuError::NoSymbol`] if NVRTC is missing or too old, [`GpuError::Unsupported`] if the device is
/// too old, [`GpuError::Compile`] with the compiler's log, [`GpuError::Nvrtc`] for any other failure.
pub fn compile(architecture: u32, dtype: Dtype) -> Result<Image, GpuError> {
    compile_source(SOURCE, architecture, dtype)
}

fn compile_source(source: &CStr, architecture: u32, dtype: Dtype) -> Result<Image, GpuError> {
    let (target, is_exact) = target(architecture, &supported()?)?;
    let program = Program::new(source)?;
    let mut options = vec![
        &*target,
        c"--std=c++17",
        c"--ptxas-options=-v",
        // Unused functions: conversions of other element types.
        c"--diag-suppress=177",
    ];
    options.extend(definitions(dtype));
    let compiled = program.compile(&options)?;
    let log = program.log()?;
    if !compiled {
        return Err(GpuError::Compile { architecture, log });
    }
    let code = program.code(is_exact)?;
    Ok(Image { code, log })
}

/// Returns the option for the target, and whether it is the architecture. `supported` is in increasing order.
fn target(architecture: u32, supported: &[u32]) -> Result<(CString, bool), GpuError> {
    let mut known = supported.iter().rev();
    let newest = known.find(|&&known| known <= architecture);
    let newest = newest.ok_or(GpuError::Unsupported { architecture })?;
    let is_exact = *newest == architecture;
    let kind = if is_exact { "sm" } else { "compute" };
    let option = format!("--gpu-architecture={kind}_{newest}");
    Ok((CString::new(option).unwrap_or_default(), is_exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPORTED: [u32; 5] = [75, 80, 86, 90, 120];

    fn target_of(architecture: u32) -> String {
        let (option, is_exact) = target(architecture, &SUPPORTED).unwrap();
        assert_eq!(is_exact, option.to_str().unwrap().contains("sm_"));
        option.into_string().unwrap()
    }

    #[test]
    fn a_known_architecture_gets_machine_code() {
        assert_eq!(target_of(90), "--gpu-architecture=sm_90");
        assert_eq!(target_of(120), "--gpu-architecture=sm_120");
    }

    #[test]
    fn an_unknown_one_gets_ptx_of_the_newest_before_it() {
        assert_eq!(target_of(89), "--gpu-architecture=compute_86");
        assert_eq!(target_of(130), "--gpu-architecture=compute_120");
    }

    #[test]
    fn one_older_than_all_is_refused() {
        let error = target(70, &SUPPORTED).unwrap_err();
        assert!(error.to_string().contains("up to sm_70"), "{error}");
    }

    #[test]
    #[ignore = "needs NVRTC: make kernels"]
    fn what_does_not_compile_is_an_error_with_the_log() {
        let source = c"#line 1 \"wrong.cu\"\n__global__ void wrong() { unknown(); }";
        let error = compile_source(source, 90, Dtype::F16).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the kernels do not compile for sm_90: "),
            "{text}"
        );
        assert!(
            text.contains("wrong.cu(1)") && text.contains("\"unknown\""),
            "{text}"
        );
    }
}
