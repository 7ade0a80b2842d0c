//! NVRTC, the compiler: whether it is there, and its calls as results.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::GpuError;
use crate::library::require;

const LIBRARY: &str = "libnvrtc";

const SYMBOLS: [&str; 12] = [
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetErrorString",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetSupportedArchs",
];

/// Loads NVRTC from a folder that is not on the library path: `nvidia/cu13/lib` beside libtorch.
///
/// The ordinary search then finds it loaded. `libnvrtc-builtins` comes first: NVRTC opens it by its name alone when it
/// compiles, and does not look beside itself.
///
/// # Errors
/// [`GpuError::NoLibrary`] if one of the two is not there or cannot be loaded.
pub fn load_nvrtc_from(folder: &Path) -> Result<(), GpuError> {
    for library in ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"] {
        // SAFETY: both libraries only set up their own tables as they are loaded.
        let loaded = unsafe { Library::open(Some(folder.join(library)), RTLD_NOW | RTLD_GLOBAL) };
        // Never unloaded: it is to be found later on.
        std::mem::forget(loaded.map_err(|_| GpuError::NoLibrary { library })?);
    }
    Ok(())
}

/// That every function used here can be called.
fn present() -> Result<(), GpuError> {
    // SAFETY: NVRTC sets up nothing but its own tables as it is loaded.
    let is_there = unsafe { sys::is_culib_present() };
    require(LIBRARY, is_there, &SYMBOLS, |symbol| {
        // SAFETY: the library is there, and the symbol is looked for and not called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_ok()
    })
}

fn check(call: &'static str, result: nvrtcResult) -> Result<(), GpuError> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: what comes back is a string of the library, for any code.
    let reason = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
    Err(GpuError::Nvrtc {
        call,
        reason: reason.to_string_lossy().into_owned(),
    })
}

/// The architectures that it compiles for, in rising order, as `10 * major + minor`.
pub(crate) fn supported() -> Result<Vec<u32>, GpuError> {
    present()?;
    let mut count: c_int = 0;
    // SAFETY: `present` has found the functions; the second writes as many numbers as the first said.
    let numbers = unsafe {
        check(
            "nvrtcGetNumSupportedArchs",
            sys::nvrtcGetNumSupportedArchs(&raw mut count),
        )?;
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        check(
            "nvrtcGetSupportedArchs",
            sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()),
        )?;
        numbers
    };
    let mut numbers: Vec<u32> = numbers
        .into_iter()
        .filter_map(|number| number.try_into().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A program of NVRTC, destroyed with its owner.
#[derive(Debug)]
pub(crate) struct Program(nvrtcProgram);

/// What a program was compiled to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Machine code of one architecture.
    Cubin,
    /// Text that a driver compiles, with a zero byte at its end.
    Ptx,
}

impl Program {
    pub(crate) fn new(source: &CStr) -> Result<Self, GpuError> {
        present()?;
        let mut program: nvrtcProgram = ptr::null_mut();
        // SAFETY: the strings end with a zero; no headers are given.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                source.as_ptr(),
                c"plmkit.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        check("nvrtcCreateProgram", result)?;
        Ok(Self(program))
    }

    /// Compiles; false where the source is at fault, and the log says how.
    #[allow(clippy::cast_possible_wrap, reason = "a handful of options")]
    pub(crate) fn compile(&self, options: &[&CStr]) -> Result<bool, GpuError> {
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and so are as many strings.
        let result =
            unsafe { sys::nvrtcCompileProgram(self.0, options.len() as c_int, options.as_ptr()) };
        if result == nvrtcResult::NVRTC_ERROR_COMPILATION {
            return Ok(false);
        }
        check("nvrtcCompileProgram", result)?;
        Ok(true)
    }

    /// What the compiler and `ptxas` said.
    pub(crate) fn log(&self) -> Result<String, GpuError> {
        let log = self.read(
            ("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize),
            ("nvrtcGetProgramLog", sys::nvrtcGetProgramLog),
        )?;
        Ok(String::from_utf8_lossy(&log)
            .trim_end_matches('\0')
            .trim()
            .to_owned())
    }

    /// The result of a compilation that succeeded.
    pub(crate) fn code(&self, form: Form) -> Result<Vec<u8>, GpuError> {
        match form {
            Form::Cubin => self.read(
                ("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize),
                ("nvrtcGetCUBIN", sys::nvrtcGetCUBIN),
            ),
            Form::Ptx => self.read(
                ("nvrtcGetPTXSize", sys::nvrtcGetPTXSize),
                ("nvrtcGetPTX", sys::nvrtcGetPTX),
            ),
        }
    }

    fn read(
        &self,
        (size_call, size): (
            &'static str,
            unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        ),
        (call, read): (
            &'static str,
            unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
        ),
    ) -> Result<Vec<u8>, GpuError> {
        let mut bytes = 0;
        // SAFETY: the program is alive; the second function writes as many bytes as the first said.
        unsafe {
            check(size_call, size(self.0, &raw mut bytes))?;
            let mut text = vec![0u8; bytes];
            check(call, read(self.0, text.as_mut_ptr().cast()))?;
            Ok(text)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it is alive until here. There is nobody to tell of a failure.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_library_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = load_nvrtc_from(folder.path()).unwrap_err();
        assert!(matches!(
            error,
            GpuError::NoLibrary {
                library: "libnvrtc-builtins.so.13.0"
            }
        ));
    }
}
