//! The CUDA driver: a device, and the kernels loaded on it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::launch::Launch;
use crate::library::{functions, open_driver};
use crate::source::Kernel;
use crate::{Architecture, GpuError, Image};

/// A `CUresult`.
type Status = c_uint;

functions! {
    /// Functions of the driver, as `cuda.h` declares them.
    Cuda:
    cuCtxPopCurrent_v2(*mut Context) -> Status;
    cuCtxPushCurrent_v2(Context) -> Status;
    cuDeviceGet(*mut c_int, c_int) -> Status;
    cuDeviceGetAttribute(*mut c_int, c_uint, c_int) -> Status;
    cuDevicePrimaryCtxRelease_v2(c_int) -> Status;
    cuDevicePrimaryCtxRetain(*mut Context, c_int) -> Status;
    cuGetErrorName(Status, *mut *const c_char) -> Status;
    cuGetErrorString(Status, *mut *const c_char) -> Status;
    cuInit(c_uint) -> Status;
    cuLaunchKernel(Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
    cuModuleGetFunction(*mut Function, ModuleHandle, *const c_char) -> Status;
    cuModuleLoadData(*mut ModuleHandle, *const c_void) -> Status;
    cuModuleUnload(ModuleHandle) -> Status;
}

/// A `CUcontext`.
type Context = *mut c_void;
/// A `CUmodule`.
type ModuleHandle = *mut c_void;
/// A `CUfunction`.
type Function = *mut c_void;

/// Attributes of `cuDeviceGetAttribute`.
const COMPUTE_CAPABILITY_MAJOR: c_uint = 75;
const COMPUTE_CAPABILITY_MINOR: c_uint = 76;

/// The driver, once it is loaded.
fn cuda() -> Result<&'static Cuda, GpuError> {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    if let Some(cuda) = CUDA.get() {
        return Ok(cuda);
    }
    let found = Cuda::find(open_driver()?, "libcuda")?;
    Ok(CUDA.get_or_init(|| found))
}

impl Cuda {
    fn check(&self, call: &'static str, status: Status) -> Result<(), GpuError> {
        if status == 0 {
            return Ok(());
        }
        let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text: *const c_char = ptr::null();
            // SAFETY: on success `text` is a string of the driver.
            unsafe {
                (get(status, &raw mut text) == 0 && !text.is_null())
                    .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| format!("error {status}"));
        Err(GpuError::Driver {
            call,
            code: status,
            reason: match text(self.cuGetErrorString) {
                Some(words) => format!("{words} ({name})"),
                None => name,
            },
        })
    }
}

/// A device by its number, with its primary context: the one that libraries on the runtime API share.
#[derive(Debug)]
pub(crate) struct Device {
    cuda: &'static Cuda,
    /// A `CUdevice`.
    number: c_int,
    context: Context,
}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Self, GpuError> {
        let cuda = cuda()?;
        let mut device: c_int = 0;
        let mut context: Context = ptr::null_mut();
        // A number that is no int is one of no device.
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the results are written to values that are alive.
        unsafe {
            cuda.check("cuInit", (cuda.cuInit)(0))?;
            let found = (cuda.cuDeviceGet)(&raw mut device, ordinal);
            cuda.check("cuDeviceGet", found)?;
            let retained = (cuda.cuDevicePrimaryCtxRetain)(&raw mut context, device);
            cuda.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        Ok(Self {
            cuda,
            number: device,
            context,
        })
    }

    /// Its compute capability.
    pub(crate) fn architecture(&self) -> Result<Architecture, GpuError> {
        let attribute = |attribute| {
            let mut value: c_int = 0;
            // SAFETY: the device is one of the driver.
            let status =
                unsafe { (self.cuda.cuDeviceGetAttribute)(&raw mut value, attribute, self.number) };
            self.cuda.check("cuDeviceGetAttribute", status)?;
            Ok(value.unsigned_abs())
        };
        Ok(Architecture {
            major: attribute(COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(COMPUTE_CAPABILITY_MINOR)?,
        })
    }

    /// Makes the context current on this thread until what is returned goes.
    fn enter(&self) -> Result<Entered, GpuError> {
        // SAFETY: the context is retained as long as this value lives.
        let status = unsafe { (self.cuda.cuCtxPushCurrent_v2)(self.context) };
        self.cuda.check("cuCtxPushCurrent", status)?;
        Ok(Entered { cuda: self.cuda })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`. There is nobody to tell of a failure.
        let _ = unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(self.number) };
    }
}

/// A context that is current on this thread.
struct Entered {
    cuda: &'static Cuda,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: Context = ptr::null_mut();
        // SAFETY: what `enter` has pushed lies on top of this thread's stack again.
        let _ = unsafe { (self.cuda.cuCtxPopCurrent_v2)(&raw mut context) };
    }
}

/// The kernels on a device.
#[derive(Debug)]
pub(crate) struct Module {
    handle: ModuleHandle,
    /// In the order of [`Kernel::ALL`].
    functions: Vec<Function>,
    device: Device,
}

// SAFETY: handles of the driver may be used by any thread, by several at once; a launch makes the context current on
// its own.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(device: Device, image: &Image) -> Result<Self, GpuError> {
        let cuda = device.cuda;
        let entered = device.enter()?;
        let mut module: ModuleHandle = ptr::null_mut();
        // SAFETY: the image is whole: an ELF file that knows its size, or text with a zero at its end.
        let status =
            unsafe { (cuda.cuModuleLoadData)(&raw mut module, image.code().as_ptr().cast()) };
        cuda.check("cuModuleLoadData", status)?;
        drop(entered);
        // From here on it is unloaded whatever happens.
        let mut loaded = Self {
            handle: module,
            functions: Vec::with_capacity(Kernel::ALL.len()),
            device,
        };
        let entered = loaded.device.enter()?;
        for kernel in Kernel::ALL {
            let mut function: Function = ptr::null_mut();
            // SAFETY: the module is loaded.
            let status = unsafe {
                (cuda.cuModuleGetFunction)(&raw mut function, module, kernel.name().as_ptr())
            };
            cuda.check("cuModuleGetFunction", status)?;
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
        let status = unsafe {
            (self.device.cuda.cuLaunchKernel)(
                self.functions[launch.kernel as usize],
                launch.grid.0,
                launch.grid.1,
                1,
                launch.threads,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.device.cuda.check("cuLaunchKernel", status)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: loaded in this context, and nobody has its functions any more. There is nobody to tell of a
            // failure.
            let _ = unsafe { (self.device.cuda.cuModuleUnload)(self.handle) };
        }
    }
}
