//! Kernels on a device, through the CUDA driver.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::devices::{Context, Driver, Function, ModuleHandle, driver};
use crate::kernels::Work;
use crate::launch::Launch;
use crate::library::call;
use crate::source::Kernel;
use crate::{Dtype, GpuError, compile, element_of};

/// A device with its primary context, which libraries on the runtime API share.
#[derive(Debug)]
struct Device {
    driver: &'static Driver,
    /// A `CUdevice`.
    number: c_int,
    context: Context,
}

impl Device {
    fn open(ordinal: usize) -> Result<Self, GpuError> {
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
    fn architecture(&self) -> Result<u32, GpuError> {
        let (major, minor) = self.driver.capability(self.number)?;
        Ok(10 * major.unsigned_abs() + minor.unsigned_abs())
    }

    /// Makes the context current on this thread for some calls.
    fn enter<T>(&self, calls: impl FnOnce() -> Result<T, GpuError>) -> Result<T, GpuError> {
        // SAFETY: the context is retained as long as `self` lives.
        call!(self.driver, cuCtxPushCurrent_v2(self.context))?;
        let result = calls();
        let mut context: Context = ptr::null_mut();
        // SAFETY: the context is on top of this thread's stack again.
        let _ = unsafe { (self.driver.cuCtxPopCurrent_v2)(&raw mut context) };
        result
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `open` has retained the context once. A failure cannot be reported.
        let _ = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.number) };
    }
}

/// The kernels of a device for models of one type. Any thread may launch them.
#[derive(Debug)]
pub struct Kernels {
    element: Dtype,
    /// The module that has them.
    module: ModuleHandle,
    /// The functions of the first kernels of [`Kernel`], in that order.
    functions: Vec<Function>,
    device: Device,
}

// SAFETY: any thread may use handles of the driver, several at once. A launch makes the context current.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Compiles the kernels for a device and loads them into its primary context, which libtorch uses too.
    ///
    /// # Errors
    /// Those of [`compile`]; [`GpuError::NoLibrary`] and [`GpuError::NoSymbol`] if the driver is missing or too old;
    /// [`GpuError::Driver`] if there is no such device.
    pub fn load(ordinal: usize, dtype: Dtype) -> Result<Self, GpuError> {
        let device = Device::open(ordinal)?;
        let (driver, image) = (device.driver, compile(device.architecture()?, dtype)?);
        let mut module: ModuleHandle = ptr::null_mut();
        // SAFETY: the image is complete: an ELF file, which states its size, or text that ends with a zero byte.
        let code = image.code.as_ptr().cast();
        device.enter(|| call!(driver, cuModuleLoadData(&raw mut module, code)))?;
        // From here on, drop unloads the module.
        let mut loaded = Self {
            element: element_of(dtype),
            module,
            functions: Vec::new(),
            device,
        };
        let function = |kernel: &Kernel| {
            let (mut function, name): (Function, _) = (ptr::null_mut(), kernel.name());
            // SAFETY: the module is loaded.
            call!(
                driver,
                cuModuleGetFunction(&raw mut function, module, name.as_ptr())
            )?;
            Ok(function)
        };
        let functions = || Kernel::of(dtype).iter().map(function).collect();
        loaded.functions = loaded.device.enter(functions)?;
        Ok(loaded)
    }

    /// Returns the type of values between matrix products.
    pub fn element(&self) -> Dtype {
        self.element
    }

    /// Queues work on a stream: a `CUstream`, or null for the default stream. Returns before the work is done; a failure on the device
    /// is an error of a later call.
    ///
    /// # Safety
    /// The stream belongs to the device of these kernels. The pointers are to memory of that device in the shapes that the work
    /// describes, valid until the stream has done it. What is written overlaps no other memory, except where the work says so.
    ///
    /// # Errors
    /// [`GpuError::Argument`] for sizes and pointers, [`GpuError::Driver`].
    pub unsafe fn run(&self, stream: *mut c_void, work: &impl Work) -> Result<(), GpuError> {
        for launch in work.launches(self.element)? {
            // SAFETY: the caller guarantees the pointers of the launch.
            unsafe { self.launch(stream, launch)? };
        }
        Ok(())
    }

    /// Queues a launch on a stream.
    ///
    /// # Safety
    /// The stream belongs to this device. The memory of the kernel is valid until the stream has run it.
    unsafe fn launch(&self, stream: *mut c_void, mut launch: Launch) -> Result<(), GpuError> {
        let function = self.functions.get(launch.kernel as usize);
        let missing = || GpuError::Argument("not a kernel of this type".to_owned());
        let function = *function.ok_or_else(missing)?;
        let mut arguments = launch.addresses();
        // SAFETY: the arguments are those of the kernel, and the driver copies them before it returns. The caller guarantees the
        // memory that they point to.
        let ((width, height), threads) = (launch.grid, launch.threads);
        let (arguments, nothing) = (arguments.as_mut_ptr(), ptr::null_mut());
        self.device.enter(|| {
            call!(
                self.device.driver,
                cuLaunchKernel(
                    function, width, height, 1, threads, 1, 1, 0, stream, arguments, nothing
                )
            )
        })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let driver = self.device.driver;
        // SAFETY: the module was loaded in this context, and nothing else uses its functions. A failure cannot be reported.
        let _ = (self.device).enter(|| call!(driver, cuModuleUnload(self.module)));
    }
}
