//! The kernels of a device.

mod add_layer_norm;
mod bias_gelu;
mod embed;
mod pool;
mod rope;
mod silu_gate;

use std::ffi::c_void;

pub use add_layer_norm::AddLayerNorm;
pub use bias_gelu::BiasGelu;
pub use embed::Embed;
pub use pool::Pool;
pub use rope::{Rope, RopeNorm};
pub use silu_gate::SiluGate;

use crate::driver::{Device, Module};
use crate::launch::Launch;
use crate::{Dtype, GpuError, compile};

/// The kernels of a device for one element type. Any thread may launch them.
///
/// Each method takes a description of its work, device pointers and sizes, and queues it on a stream: a `CUstream`, or null for
/// the default stream. It returns before the work is done; a failure on the device is an error of a later call. Work
/// without tokens is not launched.
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
    pub fn load(ordinal: usize, element: Dtype) -> Result<Self, GpuError> {
        let device = Device::open(ordinal)?;
        let image = compile(device.architecture()?, element)?;
        Ok(Self {
            element,
            module: Module::load(device, &image)?,
        })
    }

    /// Returns the element type.
    pub fn element(&self) -> Dtype {
        self.element
    }

    /// Rotates queries and keys by their positions, normalised first if they are to be.
    ///
    /// # Safety
    /// The stream belongs to the device of these kernels. The pointers are to memory of that device in the shapes of [`Rope`],
    /// valid until the stream has done this work. Positions are rows of `turns`.
    ///
    /// # Errors
    /// [`GpuError::Argument`] for sizes and pointers, [`GpuError::Driver`].
    pub unsafe fn rope(&self, stream: *mut c_void, work: &Rope) -> Result<(), GpuError> {
        // SAFETY: the caller guarantees the pointers of the launch.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Adds to the residual stream and normalises it.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`AddLayerNorm`]. `out` may be `y`, and overlaps no other memory.
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn add_layer_norm(
        &self,
        stream: *mut c_void,
        work: &AddLayerNorm,
    ) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Adds a bias and applies GELU.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`BiasGelu`].
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn bias_gelu(&self, stream: *mut c_void, work: &BiasGelu) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Multiplies values by `SiLU` of their gates.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`SiluGate`].
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn silu_gate(&self, stream: *mut c_void, work: &SiluGate) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Looks up token embeddings.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`Embed`]. `cu_seqlens` increases from 0 to the number of tokens.
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn embed(&self, stream: *mut c_void, work: &Embed) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { self.launch(stream, work.launch()?) }
    }

    /// Pools each sequence to one vector.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`Pool`]. `cu_seqlens` increases from 0 to the number of tokens.
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn pool(&self, stream: *mut c_void, work: &Pool) -> Result<(), GpuError> {
        for launch in work.launches()? {
            // SAFETY: as above.
            unsafe { self.launch(stream, Some(launch))? };
        }
        Ok(())
    }

    /// # Safety
    /// As [`Module::launch`].
    unsafe fn launch(&self, stream: *mut c_void, launch: Option<Launch>) -> Result<(), GpuError> {
        match launch {
            // SAFETY: passed on.
            Some(launch) => unsafe { self.module.launch(stream, launch) },
            None => Ok(()),
        }
    }
}
