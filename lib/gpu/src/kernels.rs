//! The kernels of one device, ready to be launched.

mod add_layer_norm;
mod bias_gelu;
mod embed;
mod pool;
mod rope;

use std::ffi::c_void;

pub use add_layer_norm::AddLayerNorm;
pub use bias_gelu::BiasGelu;
pub use embed::Embed;
pub use pool::{Pool, Pooling};
pub use rope::Rope;

use crate::driver::{Device, Module};
use crate::launch::Launch;
use crate::{Element, GpuError, Image, compile};

/// The kernels on one device, for one type of element. Any thread may launch them.
///
/// Each takes the description of its work, whose fields are raw pointers of the device and sizes, and puts it at the
/// end of a stream (a `CUstream`; null is the default stream). It returns when the work is queued, not when it is done;
/// what goes wrong on the device is an error of a later call. No tokens are no work, whatever the pointers.
#[derive(Debug)]
pub struct Kernels {
    element: Element,
    module: Module,
}

impl Kernels {
    /// Compiles the kernels for a device, by its number, and loads them into its primary context, which libtorch uses
    /// too.
    ///
    /// # Errors
    /// Those of [`compile`] and of [`Kernels::from_image`].
    pub fn load(ordinal: usize, element: Element) -> Result<Self, GpuError> {
        let device = Device::open(ordinal)?;
        let image = compile(device.architecture()?, element)?;
        Self::on_device(device, &image)
    }

    /// Loads kernels that were compiled before.
    ///
    /// # Errors
    /// [`GpuError::NoLibrary`] and [`GpuError::NoSymbol`] where the driver is missing or too old, and
    /// [`GpuError::Driver`] where there is no such device or the image is not for it.
    pub fn from_image(ordinal: usize, image: &Image) -> Result<Self, GpuError> {
        Self::on_device(Device::open(ordinal)?, image)
    }

    fn on_device(device: Device, image: &Image) -> Result<Self, GpuError> {
        Ok(Self {
            element: image.element(),
            module: Module::load(device, image)?,
        })
    }

    /// The type that these are for.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Rotates queries and keys by their positions.
    ///
    /// # Safety
    /// The stream is one of the device of these kernels, and the pointers are to memory of it in the shapes that
    /// [`Rope`] states, until the stream has passed this work. Positions are rows of `turns`.
    ///
    /// # Errors
    /// Pointers that are null or misaligned, sizes that are too large or do not fit together, and those of the driver.
    pub unsafe fn rope(&self, stream: *mut c_void, work: &Rope) -> Result<(), GpuError> {
        // SAFETY: the caller vouches for the pointers, and the launch is made of its description.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Adds to the residual stream and normalises it.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`AddLayerNorm`]. `out` may be `y`, and overlaps nothing else.
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

    /// Looks tokens up.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`Embed`]. `cu_seqlens` rises from 0 to the number of tokens.
    ///
    /// # Errors
    /// As [`Kernels::rope`].
    pub unsafe fn embed(&self, stream: *mut c_void, work: &Embed) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { self.launch(stream, work.launch(self.element)?) }
    }

    /// Makes one vector of each sequence.
    ///
    /// # Safety
    /// As [`Kernels::rope`], with the shapes of [`Pool`]. `cu_seqlens` rises from 0 to the number of tokens.
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
