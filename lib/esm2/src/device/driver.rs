//! What the NVIDIA driver says of the GPUs that this process may use, without libtorch.
#![allow(unsafe_code)] // calls into a library that is found at run time

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::OnceLock;

use libloading::{Library, Symbol};
use plmkit_contract::cause;
use plmkit_gpu::{DRIVER, GpuError, open_driver};

/// Attributes of `cuDeviceGetAttribute`.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
/// The status of `cuInit` where a driver is there and no device.
const NO_DEVICE: c_int = 100;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// As the driver calls it: `NVIDIA H100 80GB HBM3`.
    pub(crate) name: String,
    /// Its compute capability, major and minor: `(9, 0)`.
    pub(crate) capability: (c_int, c_int),
    /// Its lasting name, as the driver's management library writes it: `GPU-…`. Of an instance of a GPU (MIG) that of the GPU.
    pub(crate) uuid: Option<String>,
}

/// Why the driver says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverError {
    /// There is none: the loader's words.
    Missing(String),
    /// It does not work: its own words, or the loader's.
    Failed(String),
}

/// The GPUs that are visible to this process, in the order in which CUDA counts them; `CUDA_VISIBLE_DEVICES` is heeded. The driver is
/// asked once.
pub(crate) fn gpus() -> Result<Vec<Gpu>, DriverError> {
    static FOUND: OnceLock<Result<Vec<Gpu>, DriverError>> = OnceLock::new();
    let ask = || {
        let library = open_driver().map_err(|error| not_loaded(&error))?;
        let found = Driver { library: &library }.gpus();
        // It stays loaded: libtorch will use it.
        std::mem::forget(library);
        found
    };
    FOUND.get_or_init(ask).clone()
}

/// The newest version of CUDA that the driver runs, major and minor; `None` where it does not say.
pub(crate) fn cuda_version() -> Option<(c_int, c_int)> {
    let library = open_driver().ok()?;
    // SAFETY: the signature is that of cuda.h.
    let get: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
        unsafe { library.get(b"cuDriverGetVersion\0") }.ok()?;
    let mut version = 0;
    let status = unsafe { get(&raw mut version) };
    (status == 0).then_some((version / 1000, version % 1000 / 10))
}

/// Whether a driver is not there or cannot be loaded, as an empty file in its place cannot.
fn not_loaded(error: &GpuError) -> DriverError {
    let words = error.to_string();
    if words.ends_with(&format!(
        "{DRIVER}: cannot open shared object file: No such file or directory"
    )) {
        DriverError::Missing(words)
    } else {
        DriverError::Failed(words)
    }
}

struct Driver<'a> {
    library: &'a Library,
}

impl Driver<'_> {
    fn gpus(&self) -> Result<Vec<Gpu>, DriverError> {
        // SAFETY (all calls): signatures are those of cuda.h, which the driver keeps from version to version; what is
        // written to is there.
        let init: Symbol<unsafe extern "C" fn(c_uint) -> c_int> = self.function(b"cuInit\0")?;
        match unsafe { init(0) } {
            NO_DEVICE => return Ok(Vec::new()),
            status => self.check("cuInit", status)?,
        }
        let get_count: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
            self.function(b"cuDeviceGetCount\0")?;
        let mut count = 0;
        self.check("cuDeviceGetCount", unsafe { get_count(&raw mut count) })?;
        (0..count).map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: c_int) -> Result<Gpu, DriverError> {
        let get: Symbol<unsafe extern "C" fn(*mut c_int, c_int) -> c_int> =
            self.function(b"cuDeviceGet\0")?;
        let mut device = 0;
        self.check("cuDeviceGet", unsafe { get(&raw mut device, index) })?;
        let get_name: Symbol<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int> =
            self.function(b"cuDeviceGetName\0")?;
        let mut name = [0; 256];
        let status = unsafe { get_name(name.as_mut_ptr(), 255, device) };
        self.check("cuDeviceGetName", status)?;
        // SAFETY: the last of 256 bytes was not written to and is 0.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(Gpu {
            name: name.to_string_lossy().into_owned(),
            capability: (
                self.attribute(device, COMPUTE_CAPABILITY_MAJOR)?,
                self.attribute(device, COMPUTE_CAPABILITY_MINOR)?,
            ),
            uuid: self.uuid(device),
        })
    }

    fn uuid(&self, device: c_int) -> Option<String> {
        // Not its second version, which names the instance: measured is the GPU.
        let get: Symbol<unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int> =
            self.function(b"cuDeviceGetUuid\0").ok()?;
        let mut bytes = [0; 16];
        let status = unsafe { get(&raw mut bytes, device) };
        (status == 0).then(|| uuid_text(&bytes))
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<c_int, DriverError> {
        let get: Symbol<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int> =
            self.function(b"cuDeviceGetAttribute\0")?;
        let mut value = 0;
        let status = unsafe { get(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(value)
    }

    fn function<T>(&self, name: &[u8]) -> Result<Symbol<'_, T>, DriverError> {
        // SAFETY: the types are those of the driver's header.
        let found = unsafe { self.library.get(name) };
        found.map_err(|error| DriverError::Failed(cause(&error)))
    }

    fn check(&self, function: &str, status: c_int) -> Result<(), DriverError> {
        if status == 0 {
            return Ok(());
        }
        let what = self.words(status).unwrap_or_else(|| "unknown".to_owned());
        Err(DriverError::Failed(format!(
            "{function}: {what} ({status})"
        )))
    }

    /// What a status means.
    fn words(&self, status: c_int) -> Option<String> {
        let get: Symbol<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int> =
            self.function(b"cuGetErrorString\0").ok()?;
        let mut words = std::ptr::null();
        let known = unsafe { get(status, &raw mut words) } == 0 && !words.is_null();
        // SAFETY: a text of the driver's own, which lasts as long as the driver.
        known.then(|| {
            unsafe { CStr::from_ptr(words) }
                .to_string_lossy()
                .into_owned()
        })
    }
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    format!("GPU-{}", groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_cannot_be_loaded_is_not_one_that_is_missing() {
        let told = |reason: &str| {
            not_loaded(&GpuError::NoLibrary {
                reason: reason.to_owned(),
            })
        };
        let missing = "libcuda.so.1: cannot open shared object file: No such file or directory";
        assert!(matches!(told(missing), DriverError::Missing(_)));
        for failed in [
            "/usr/lib/libcuda.so.1: file too short",
            "libnvidia-x.so: cannot open shared object file: No such file or directory",
        ] {
            let expected = DriverError::Failed(format!("cannot load {failed}"));
            assert_eq!(told(failed), expected);
        }
    }

    #[test]
    fn a_uuid_is_written_in_five_groups() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(
            uuid_text(&bytes),
            "GPU-00112233-4455-6677-8899-aabbccddeeff"
        );
    }
}
