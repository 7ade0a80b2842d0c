//! NVRTC, the compiler of CUDA C++.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_NOW};
use plmkit_kit::{cause, io_text, path_text};

use crate::GpuError;
use crate::library::{call, functions, open};

/// NVRTC of the CUDA version of libtorch, then of others.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// The library of NVRTC's built-in declarations: `.0`, `.1`, … of the same CUDA.
const BUILTINS: &str = "libnvrtc-builtins.so.13.";

/// An `nvrtcResult`.
type Status = c_int;
/// The status of a program that does not compile.
const ERROR_COMPILATION: Status = 6;
/// An `nvrtcProgram`.
type Handle = *mut c_void;

functions! {
    /// Functions of NVRTC, as `nvrtc.h` declares them.
    Nvrtc:
    nvrtcCompileProgram(Handle, c_int, *const *const c_char) -> Status;
    nvrtcCreateProgram(*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
    nvrtcDestroyProgram(*mut Handle) -> Status;
    nvrtcGetCUBIN(Handle, *mut c_char) -> Status;
    nvrtcGetCUBINSize(Handle, *mut usize) -> Status;
    nvrtcGetErrorString(Status) -> *const c_char;
    nvrtcGetNumSupportedArchs(*mut c_int) -> Status;
    nvrtcGetPTX(Handle, *mut c_char) -> Status;
    nvrtcGetPTXSize(Handle, *mut usize) -> Status;
    nvrtcGetProgramLog(Handle, *mut c_char) -> Status;
    nvrtcGetProgramLogSize(Handle, *mut usize) -> Status;
    nvrtcGetSupportedArchs(*mut c_int) -> Status;
}

/// NVRTC after it is loaded.
static NVRTC: OnceLock<Nvrtc> = OnceLock::new();

/// Loads NVRTC from a folder that is not on the library path: `nvidia/cu13/lib` beside libtorch.
///
/// Loads `libnvrtc-builtins` first: NVRTC opens it by its name when it compiles, and does not search its own folder.
///
/// # Errors
/// [`GpuError::NoLibrary`] if a library is missing or cannot be loaded, [`GpuError::NoSymbol`] if NVRTC is too old.
pub fn load_nvrtc_from(folder: &Path) -> Result<(), GpuError> {
    if NVRTC.get().is_some() {
        return Ok(());
    }
    let missing =
        |reason: &str| GpuError::NoLibrary(format!("{}/{BUILTINS}*: {reason}", path_text(folder)));
    let entries = fs::read_dir(folder).map_err(|error| missing(&io_text(&error)))?;
    let mut builtins: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(BUILTINS))
        .map(|entry| entry.path())
        .collect();
    builtins.sort();
    if builtins.is_empty() {
        return Err(missing("no such file"));
    }
    for library in builtins {
        // Stays loaded, so that NVRTC finds it.
        std::mem::forget(open_global(&library)?);
    }
    let found = Nvrtc::find(open_global(&folder.join(NAMES[0]))?, NAMES[0])?;
    NVRTC.get_or_init(|| found);
    Ok(())
}

fn open_global(path: &Path) -> Result<Library, GpuError> {
    // SAFETY: loading either library only sets up its own tables.
    let loaded = unsafe { unix::Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    loaded
        .map(Into::into)
        .map_err(|error| GpuError::NoLibrary(cause(&error)))
}

/// Returns NVRTC. Searches the library path unless it was loaded from a folder.
fn nvrtc() -> Result<&'static Nvrtc, GpuError> {
    if let Some(nvrtc) = NVRTC.get() {
        return Ok(nvrtc);
    }
    let found = Nvrtc::find(open(&NAMES)?, "libnvrtc")?;
    Ok(NVRTC.get_or_init(|| found))
}

impl Nvrtc {
    fn check(&self, call: &'static str, status: Status) -> Result<(), GpuError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the result is a string of the library, for any status.
        let reason = unsafe { CStr::from_ptr((self.nvrtcGetErrorString)(status)) };
        Err(GpuError::Nvrtc {
            call,
            reason: reason.to_string_lossy().into_owned(),
        })
    }
}

/// Returns the supported architectures in increasing order, as `10 * major + minor`.
pub(crate) fn supported() -> Result<Vec<u32>, GpuError> {
    let nvrtc = nvrtc()?;
    let mut count: c_int = 0;
    // SAFETY: the second function writes as many numbers as the first returns.
    call!(nvrtc, nvrtcGetNumSupportedArchs(&raw mut count))?;
    let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    call!(nvrtc, nvrtcGetSupportedArchs(numbers.as_mut_ptr()))?;
    let mut numbers: Vec<u32> = numbers
        .into_iter()
        .filter_map(|number| number.try_into().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A program of NVRTC. Drop destroys it.
#[derive(Debug)]
pub(crate) struct Program {
    nvrtc: &'static Nvrtc,
    handle: Handle,
}

/// Reads bytes of a program by the function that returns their number and the one that writes them.
macro_rules! read {
    ($program:expr, $size:ident, $read:ident) => {{
        let Program { nvrtc, handle } = *$program;
        let mut bytes = 0;
        // SAFETY: the program outlives the calls. The second function writes as many bytes as the first returns.
        call!(nvrtc, $size(handle, &raw mut bytes))?;
        let mut text = vec![0u8; bytes];
        call!(nvrtc, $read(handle, text.as_mut_ptr().cast()))?;
        text
    }};
}

impl Program {
    pub(crate) fn new(source: &CStr) -> Result<Self, GpuError> {
        let nvrtc = nvrtc()?;
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the strings end with a zero byte, and there are no headers.
        let (source, name) = (source.as_ptr(), c"plmkit.cu".as_ptr());
        let (none, none_either) = (ptr::null(), ptr::null());
        call!(
            nvrtc,
            nvrtcCreateProgram(&raw mut handle, source, name, 0, none, none_either)
        )?;
        Ok(Self { nvrtc, handle })
    }

    /// Compiles the program. Returns whether the source compiles; the log says why not.
    #[allow(clippy::cast_possible_wrap, reason = "a handful of options")]
    pub(crate) fn compile(&self, options: &[&CStr]) -> Result<bool, GpuError> {
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program and the strings outlive the call.
        let status = unsafe {
            (self.nvrtc.nvrtcCompileProgram)(self.handle, options.len() as c_int, options.as_ptr())
        };
        if status == ERROR_COMPILATION {
            return Ok(false);
        }
        self.nvrtc.check("nvrtcCompileProgram", status)?;
        Ok(true)
    }

    /// Returns the log of the compiler and `ptxas`.
    pub(crate) fn log(&self) -> Result<String, GpuError> {
        let log = read!(self, nvrtcGetProgramLogSize, nvrtcGetProgramLog);
        Ok(String::from_utf8_lossy(&log)
            .trim_end_matches('\0')
            .trim()
            .to_owned())
    }

    /// Returns the code of a program that was compiled: machine code of one architecture, or text that the driver compiles, which ends
    /// with a zero byte.
    pub(crate) fn code(&self, is_machine_code: bool) -> Result<Vec<u8>, GpuError> {
        if is_machine_code {
            return Ok(read!(self, nvrtcGetCUBINSize, nvrtcGetCUBIN));
        }
        Ok(read!(self, nvrtcGetPTXSize, nvrtcGetPTX))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program exists until here. A failure cannot be reported.
        let _ = unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_library_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let expect = |words: &str| {
            let error = load_nvrtc_from(folder.path()).unwrap_err();
            assert_eq!(error.to_string(), format!("cannot load {path}/{words}"));
        };
        expect("libnvrtc-builtins.so.13.*: no such file");
        fs::write(folder.path().join("libnvrtc-builtins.so.13.9"), "").unwrap();
        expect("libnvrtc-builtins.so.13.9: file too short");
    }
}
