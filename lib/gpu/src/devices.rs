//! The GPUs that the CUDA driver shows to this process.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::GpuError;
use crate::library::{call, functions, open_driver};

/// A `CUresult`.
pub(crate) type Status = c_uint;
/// A `CUcontext`.
pub(crate) type Context = *mut c_void;
/// A `CUmodule`.
pub(crate) type ModuleHandle = *mut c_void;
/// A `CUfunction`.
pub(crate) type Function = *mut c_void;

functions! {
    /// Functions of the driver, as `cuda.h` declares them.
    Driver:
    cuCtxPopCurrent_v2(*mut Context) -> Status;
    cuCtxPushCurrent_v2(Context) -> Status;
    cuDeviceGet(*mut c_int, c_int) -> Status;
    cuDeviceGetAttribute(*mut c_int, c_uint, c_int) -> Status;
    cuDeviceGetCount(*mut c_int) -> Status;
    cuDeviceGetName(*mut c_char, c_int, c_int) -> Status;
    cuDeviceGetUuid(*mut [u8; 16], c_int) -> Status;
    cuDeviceGetUuid_v2(*mut [u8; 16], c_int) -> Status;
    cuDevicePrimaryCtxRelease_v2(c_int) -> Status;
    cuDevicePrimaryCtxRetain(*mut Context, c_int) -> Status;
    cuDriverGetVersion(*mut c_int) -> Status;
    cuGetErrorString(Status, *mut *const c_char) -> Status;
    cuInit(c_uint) -> Status;
    cuLaunchKernel(Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
    cuModuleGetFunction(*mut Function, ModuleHandle, *const c_char) -> Status;
    cuModuleLoadData(*mut ModuleHandle, *const c_void) -> Status;
    cuModuleUnload(ModuleHandle) -> Status;
}

/// Attributes of `cuDeviceGetAttribute`.
const COMPUTE_CAPABILITY_MAJOR: c_uint = 75;
const COMPUTE_CAPABILITY_MINOR: c_uint = 76;
/// The status of `cuInit` if the driver works and there is no device.
const NO_DEVICE: Status = 100;

/// Returns the driver. Loads it on the first call.
pub(crate) fn driver() -> Result<&'static Driver, GpuError> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let found = Driver::find(open_driver()?, "libcuda")?;
    Ok(DRIVER.get_or_init(|| found))
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's name for it: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Its compute capability, major and minor: `(9, 0)`.
    pub capability: (i32, i32),
    /// Its unique id as NVML writes it, if the driver tells: `GPU-…`, or `MIG-…` for an instance of a GPU.
    pub uuid: Option<String>,
}

/// Returns the GPUs that are visible to this process, in CUDA's order. Respects `CUDA_VISIBLE_DEVICES`. Asks the driver once.
///
/// # Errors
/// [`GpuError::NoLibrary`], [`GpuError::NoSymbol`] or [`GpuError::Driver`] if there is no driver or it does not work.
pub fn gpus() -> Result<Vec<Gpu>, GpuError> {
    static FOUND: OnceLock<Result<Vec<Gpu>, GpuError>> = OnceLock::new();
    FOUND.get_or_init(list).clone()
}

fn list() -> Result<Vec<Gpu>, GpuError> {
    let driver = driver()?;
    // SAFETY (this function): signatures are those of cuda.h, and results are written to values that outlive the calls.
    match unsafe { (driver.cuInit)(0) } {
        NO_DEVICE => return Ok(Vec::new()),
        status => driver.check("cuInit", status)?,
    }
    let mut count = 0;
    call!(driver, cuDeviceGetCount(&raw mut count))?;
    let gpu = |index| {
        let device = driver.device(index)?;
        let mut name = [0; 256];
        call!(driver, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        // SAFETY: the last of 256 bytes is still 0.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(Gpu {
            name: name.to_string_lossy().into_owned(),
            capability: driver.capability(device)?,
            uuid: uuid(driver, device),
        })
    };
    (0..count).map(gpu).collect()
}

/// Returns the unique id of a GPU, or of an instance of it.
fn uuid(driver: &Driver, device: c_int) -> Option<String> {
    let (mut gpu, mut instance) = ([0; 16], [0; 16]);
    // SAFETY: 16 bytes are written to each local array. The first version returns the id of the GPU, the second that of the instance.
    let status = unsafe {
        (driver.cuDeviceGetUuid)(&raw mut gpu, device)
            | (driver.cuDeviceGetUuid_v2)(&raw mut instance, device)
    };
    let kind = if gpu == instance { "GPU" } else { "MIG" };
    (status == 0).then(|| uuid_text(kind, instance))
}

fn uuid_text(kind: &str, bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &hex[group]);
    format!("{kind}-{}", groups.join("-"))
}

/// Returns the newest CUDA version that the driver supports, major and minor; `None` if it does not tell.
pub fn driver_cuda_version() -> Option<(i32, i32)> {
    let mut version = 0;
    // SAFETY: the version is written to a local number.
    let status = unsafe { (driver().ok()?.cuDriverGetVersion)(&raw mut version) };
    (status == 0).then_some((version / 1000, version % 1000 / 10))
}

/// Returns the version of the NVIDIA driver: `580.65.06`; `None` if the kernel does not show it.
pub fn driver_version() -> Option<String> {
    // CUDA has no function for it.
    let text = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(text.trim().to_owned()).filter(|version| !version.is_empty())
}

impl Driver {
    /// Returns the handle of a device. A number that is too large for CUDA is not that of a device.
    pub(crate) fn device(&self, index: impl TryInto<c_int>) -> Result<c_int, GpuError> {
        let (mut device, index) = (0, index.try_into().unwrap_or(c_int::MAX));
        // SAFETY: the handle is written to a local number.
        call!(self, cuDeviceGet(&raw mut device, index))?;
        Ok(device)
    }

    /// Returns the compute capability of a device.
    pub(crate) fn capability(&self, device: c_int) -> Result<(i32, i32), GpuError> {
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the value is written to a local number.
            call!(
                self,
                cuDeviceGetAttribute(&raw mut value, attribute, device)
            )?;
            Ok(value)
        };
        Ok((
            attribute(COMPUTE_CAPABILITY_MAJOR)?,
            attribute(COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Returns an error with the driver's words for any status but success.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<(), GpuError> {
        if status == 0 {
            return Ok(());
        }
        let mut words = ptr::null();
        // SAFETY: on success, `words` is a string of the driver that lives as long as the driver.
        let reason = unsafe {
            let is_known = (self.cuGetErrorString)(status, &raw mut words) == 0 && !words.is_null();
            is_known.then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
        };
        Err(GpuError::Driver {
            call,
            code: status,
            reason: reason.unwrap_or_else(|| "unknown".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_in_five_groups() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        let uuid = "MIG-00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(uuid_text("MIG", bytes), uuid);
    }
}
