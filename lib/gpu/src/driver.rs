//! Kernels on a device, through the CUDA driver.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::devices::{Context, Driver, Function, ModuleHandle, driver};
use crate::launch::Launch;
use crate::library::call;
use crate::source::Kernel;
use crate::{GpuError, Image};

/// A device with its primary context, which libraries on the runtime API share.
#[derive(Debug)]
pub(crate) struct Device {
    driver: &'static Driver,
    /// A `CUdevice`.
    number: c_int,
    context: Context,
}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Self, GpuError> {
        let driver = driver()?;
        let mut context: Context = ptr::null_mut();
        // SAFETY: the call has no pointers.
        call!(driver, cuInit(0))?;
        let number = driver.device(ordinal)?;
        // SAFETY: the context is written to a local value.
        call!(driver, cuDevicePrimaryCtxRetain(&raw mut context, number))?;
        Ok(Self {
            driver,
            number,
            context,
        })
    }

    /// Returns the compute capability without its dot.
    pub(crate) fn architecture(&self) -> Result<u32, GpuError> {
        let (major, minor) = self.driver.capability(self.number)?;
        Ok(10 * major.unsigned_abs() + minor.unsigned_abs())
    }

    /// Makes the context current on this thread until the returned guard is dropped.
    fn enter(&self) -> Result<Entered, GpuError> {
        // SAFETY: the context is retained as long as `self` lives.
        call!(self.driver, cuCtxPushCurrent_v2(self.context))?;
        Ok(Entered(self.driver))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `open` has retained the context once. A failure cannot be reported.
        let _ = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.number) };
    }
}

/// Keeps a context current on this thread.
struct Entered(&'static Driver);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: Context = ptr::null_mut();
        // SAFETY: the context that `enter` has pushed is on top of this thread's stack again.
        let _ = unsafe { (self.0.cuCtxPopCurrent_v2)(&raw mut context) };
    }
}

/// The kernels on a device.
#[derive(Debug)]
pub(crate) struct Module {
    handle: ModuleHandle,
    /// The functions of the first kernels of [`Kernel`], in that order.
    functions: Vec<Function>,
    device: Device,
}

// SAFETY: any thread may use handles of the driver, several at once. A launch makes the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(
        device: Device,
        image: &Image,
        kernels: &[Kernel],
    ) -> Result<Self, GpuError> {
        let driver = device.driver;
        let entered = device.enter()?;
        let mut module: ModuleHandle = ptr::null_mut();
        // SAFETY: the image is complete: an ELF file, which states its size, or text that ends with a zero byte.
        let code = image.code.as_ptr().cast();
        call!(driver, cuModuleLoadData(&raw mut module, code))?;
        drop(entered);
        // From here on, drop unloads the module.
        let mut loaded = Self {
            handle: module,
            functions: Vec::with_capacity(kernels.len()),
            device,
        };
        let entered = loaded.device.enter()?;
        for kernel in kernels {
            let mut function: Function = ptr::null_mut();
            // SAFETY: the module is loaded.
            let name = kernel.name();
            call!(
                driver,
                cuModuleGetFunction(&raw mut function, module, name.as_ptr())
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
        let function = self.functions.get(launch.kernel as usize);
        let missing = || GpuError::Argument("not a kernel of this type".to_owned());
        let function = *function.ok_or_else(missing)?;
        let _entered = self.device.enter()?;
        let mut arguments = launch.addresses();
        // SAFETY: the arguments are those of the kernel, and the driver copies them before it returns. The caller guarantees the
        // memory that they point to.
        let ((width, height), threads) = (launch.grid, launch.threads);
        let (arguments, nothing) = (arguments.as_mut_ptr(), ptr::null_mut());
        call!(
            self.device.driver,
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
            let _ = unsafe { (self.device.driver.cuModuleUnload)(self.handle) };
        }
    }
}
