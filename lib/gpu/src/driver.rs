//! Kernels on a device, through the CUDA driver.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::devices::{Driver, Status, driver};
use crate::launch::Launch;
use crate::library::{call, functions, open_driver};
use crate::source::Kernel;
use crate::{Architecture, GpuError, Image};

functions! {
    /// Functions of the driver for contexts and kernels, as `cuda.h` declares them.
    Cuda:
    cuCtxPopCurrent_v2(*mut Context) -> Status;
    cuCtxPushCurrent_v2(Context) -> Status;
    cuDevicePrimaryCtxRelease_v2(c_int) -> Status;
    cuDevicePrimaryCtxRetain(*mut Context, c_int) -> Status;
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

/// Returns the functions for kernels. Loads the driver on the first call.
fn cuda() -> Result<&'static Cuda, GpuError> {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    if let Some(cuda) = CUDA.get() {
        return Ok(cuda);
    }
    let found = Cuda::find(open_driver()?, "libcuda")?;
    Ok(CUDA.get_or_init(|| found))
}

/// A device with its primary context, which libraries on the runtime API share.
#[derive(Debug)]
pub(crate) struct Device {
    driver: &'static Driver,
    cuda: &'static Cuda,
    /// A `CUdevice`.
    number: c_int,
    context: Context,
}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Self, GpuError> {
        let (driver, cuda) = (driver()?, cuda()?);
        let mut context: Context = ptr::null_mut();
        // SAFETY: the call has no pointers.
        call!(driver, driver, cuInit(0))?;
        let number = driver.device(ordinal)?;
        // SAFETY: the context is written to a local value.
        call!(
            driver,
            cuda,
            cuDevicePrimaryCtxRetain(&raw mut context, number)
        )?;
        Ok(Self {
            driver,
            cuda,
            number,
            context,
        })
    }

    pub(crate) fn architecture(&self) -> Result<Architecture, GpuError> {
        let (major, minor) = self.driver.capability(self.number)?;
        Ok(Architecture {
            major: major.unsigned_abs(),
            minor: minor.unsigned_abs(),
        })
    }

    /// Makes the context current on this thread until the returned guard is dropped.
    fn enter(&self) -> Result<Entered, GpuError> {
        // SAFETY: the context is retained as long as `self` lives.
        call!(self.driver, self.cuda, cuCtxPushCurrent_v2(self.context))?;
        Ok(Entered { cuda: self.cuda })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `open` has retained the context once. A failure cannot be reported.
        let _ = unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(self.number) };
    }
}

/// Keeps a context current on this thread.
struct Entered {
    cuda: &'static Cuda,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: Context = ptr::null_mut();
        // SAFETY: the context that `enter` has pushed is on top of this thread's stack again.
        let _ = unsafe { (self.cuda.cuCtxPopCurrent_v2)(&raw mut context) };
    }
}

/// The kernels on a device.
#[derive(Debug)]
pub(crate) struct Module {
    handle: ModuleHandle,
    /// The functions of [`Kernel::ALL`], in that order.
    functions: Vec<Function>,
    device: Device,
}

// SAFETY: any thread may use handles of the driver, several at once. A launch makes the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(device: Device, image: &Image) -> Result<Self, GpuError> {
        let (driver, cuda) = (device.driver, device.cuda);
        let entered = device.enter()?;
        let mut module: ModuleHandle = ptr::null_mut();
        // SAFETY: the image is complete: an ELF file, which states its size, or text that ends with a zero byte.
        let code = image.code().as_ptr().cast();
        call!(driver, cuda, cuModuleLoadData(&raw mut module, code))?;
        drop(entered);
        // From here on, drop unloads the module.
        let mut loaded = Self {
            handle: module,
            functions: Vec::with_capacity(Kernel::ALL.len()),
            device,
        };
        let entered = loaded.device.enter()?;
        for kernel in Kernel::ALL {
            let mut function: Function = ptr::null_mut();
            // SAFETY: the module is loaded.
            let name = kernel.name().as_ptr();
            call!(
                driver,
                cuda,
                cuModuleGetFunction(&raw mut function, module, name)
            )?;
            loaded.functions.push(function);
        }
        drop(entered);
        Ok(loaded)
    }

    /// Queues a launch on a stream.
    ///
    /// # Safety
    /// The stream belongs to this device. The memory of the kernel is valid until the stream has run it.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut c_void,
        mut launch: Launch,
    ) -> Result<(), GpuError> {
        let _entered = self.device.enter()?;
        let mut arguments = launch.addresses();
        // SAFETY: the arguments are those of the kernel, and the driver copies them before it returns. The caller guarantees the
        // memory that they point to.
        let function = self.functions[launch.kernel as usize];
        let ((width, height), threads) = (launch.grid, launch.threads);
        let (arguments, nothing) = (arguments.as_mut_ptr(), ptr::null_mut());
        call!(
            self.device.driver,
            self.device.cuda,
            cuLaunchKernel(
                function, width, height, 1, threads, 1, 1, 0, stream, arguments, nothing
            )
        )
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the module was loaded in this context, and nothing else uses its functions. A failure cannot be
            // reported.
            let _ = unsafe { (self.device.cuda.cuModuleUnload)(self.handle) };
        }
    }
}
