//! The CUDA driver: a device, and the kernels loaded on it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUfunction, CUmodule, CUresult,
};

use crate::launch::Launch;
use crate::library::require;
use crate::source::Kernel;
use crate::{Architecture, GpuError, Image};

const LIBRARY: &str = "libcuda";

const SYMBOLS: [&str; 13] = [
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
];

/// That every function used here can be called.
fn present() -> Result<(), GpuError> {
    // SAFETY: the driver sets up nothing but its own tables as it is loaded.
    let is_there = unsafe { sys::is_culib_present() };
    require(LIBRARY, is_there, &SYMBOLS, |symbol| {
        // SAFETY: the library is there, and the symbol is looked for and not called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_ok()
    })
}

fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text: *const c_char = ptr::null();
        // SAFETY: on success `text` is a string of the driver.
        unsafe {
            (get(result, &raw mut text) == CUresult::CUDA_SUCCESS && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32));
    Err(GpuError::Driver {
        call,
        code: result as u32,
        reason: match text(sys::cuGetErrorString) {
            Some(words) => format!("{words} ({name})"),
            None => name,
        },
    })
}

/// A device by its number, with its primary context: the one that libraries on the runtime API share.
#[derive(Debug)]
pub(crate) struct Device {
    device: CUdevice,
    context: CUcontext,
}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Self, GpuError> {
        present()?;
        let mut device: CUdevice = 0;
        let mut context: CUcontext = ptr::null_mut();
        // A number that is no int is one of no device.
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `present` has found the functions; the results are written to values that are alive.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, ordinal))?;
            check(
                "cuDevicePrimaryCtxRetain",
                sys::cuDevicePrimaryCtxRetain(&raw mut context, device),
            )?;
        }
        Ok(Self { device, context })
    }

    /// Its compute capability.
    pub(crate) fn architecture(&self) -> Result<Architecture, GpuError> {
        let attribute = |attribute| {
            let mut value: c_int = 0;
            // SAFETY: the device is one of the driver.
            let result =
                unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.device) };
            check("cuDeviceGetAttribute", result)?;
            Ok(value.unsigned_abs())
        };
        Ok(Architecture {
            major: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        })
    }

    /// Makes the context current on this thread until what is returned goes.
    fn enter(&self) -> Result<Entered, GpuError> {
        // SAFETY: the context is retained as long as this value lives.
        check("cuCtxPushCurrent", unsafe {
            sys::cuCtxPushCurrent_v2(self.context)
        })?;
        Ok(Entered)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`. There is nobody to tell of a failure.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A context that is current on this thread.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: what `enter` has pushed lies on top of this thread's stack again.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) };
    }
}

/// The kernels on a device.
#[derive(Debug)]
pub(crate) struct Module {
    handle: CUmodule,
    /// In the order of [`Kernel::ALL`].
    functions: Vec<CUfunction>,
    device: Device,
}

// SAFETY: handles of the driver may be used by any thread, by several at once; a launch makes the context current on
// its own.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(device: Device, image: &Image) -> Result<Self, GpuError> {
        let entered = device.enter()?;
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the image is whole: an ELF file that knows its size, or text with a zero at its end.
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&raw mut module, image.code().as_ptr().cast())
        })?;
        drop(entered);
        // From here on it is unloaded whatever happens.
        let mut loaded = Self {
            handle: module,
            functions: Vec::with_capacity(Kernel::ALL.len()),
            device,
        };
        let entered = loaded.device.enter()?;
        for kernel in Kernel::ALL {
            let mut function: CUfunction = ptr::null_mut();
            // SAFETY: the module is loaded.
            check("cuModuleGetFunction", unsafe {
                sys::cuModuleGetFunction(&raw mut function, module, kernel.name().as_ptr())
            })?;
            loaded.functions.push(function);
        }
        drop(entered);
        Ok(loaded)
    }

    /// Puts a launch at the end of a stream.
    ///
    /// # Safety
    /// The stream is one of this device; what the kernel reads and writes is there until the stream has passed it.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut c_void,
        mut launch: Launch,
    ) -> Result<(), GpuError> {
        let _entered = self.device.enter()?;
        let mut arguments = launch.addresses();
        // SAFETY: the arguments are those of the kernel, which the driver copies before it returns; for the memory that
        // they point to the caller has vouched.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.functions[launch.kernel as usize],
                launch.grid.0,
                launch.grid.1,
                1,
                launch.threads,
                1,
                1,
                0,
                stream.cast(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: loaded in this context, and nobody has its functions any more. There is nobody to tell of a
            // failure.
            let _ = unsafe { sys::cuModuleUnload(self.handle) };
        }
    }
}
