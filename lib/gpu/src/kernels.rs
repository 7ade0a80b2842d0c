//! The kernels of a device.

mod add_layer_norm;
mod bias_gelu;
mod embed;
mod pool;
mod quantised_activation;
mod rope;
mod silu_gate;

use std::ffi::c_void;

pub use add_layer_norm::AddLayerNorm;
pub use bias_gelu::BiasGelu;
pub use embed::Embed;
pub use pool::Pool;
pub use quantised_activation::QuantisedActivation;
pub use rope::{Rope, RopeNorm};
pub use silu_gate::SiluGate;

use crate::driver::{Device, Module};
use crate::launch::Launch;
use crate::source::Kernel;
use crate::{Dtype, GpuError, compile, element_of};

/// The kernels of a device for models of one type. Any thread may launch them.
#[derive(Debug)]
pub struct Kernels {
    element: Dtype,
    module: Module,
}

impl Kernels {
    /// Compiles the kernels for a device and loads them into its primary context, which libtorch uses too.
    ///
    /// # Errors
    /// Those of [`compile`]; [`GpuError::NoLibrary`] and [`GpuError::NoSymbol`] if the driver is missing or too old;
    /// [`GpuError::Driver`] if there is no such device.
    pub fn load(ordinal: usize, dtype: Dtype) -> Result<Self, GpuError> {
        let device = Device::open(ordinal)?;
        let image = compile(device.architecture()?, dtype)?;
        Ok(Self {
            element: element_of(dtype),
            module: Module::load(device, &image, Kernel::of(dtype))?,
        })
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
            unsafe { self.module.launch(stream, launch)? };
        }
        Ok(())
    }
}

/// Work of kernels: device pointers and sizes.
pub trait Work {
    /// Returns the launches for values of a type; none without tokens.
    ///
    /// # Errors
    /// [`GpuError::Argument`].
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError>;
}
