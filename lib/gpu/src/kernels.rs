//! The work of kernels.

mod add_layer_norm;
mod bias_gelu;
mod embed;
mod pool;
mod quantised_activation;
mod rope;
mod silu_gate;

pub use add_layer_norm::AddLayerNorm;
pub use bias_gelu::BiasGelu;
pub use embed::Embed;
pub use pool::Pool;
pub use quantised_activation::QuantisedActivation;
pub use rope::{Rope, RopeNorm};
pub use silu_gate::SiluGate;

use crate::launch::Launch;
use crate::{Dtype, GpuError};

/// Work of kernels: device pointers and sizes.
pub trait Work {
    /// Returns the launches for values of a type; none without tokens.
    ///
    /// # Errors
    /// [`GpuError::Argument`].
    fn launches(&self, element: Dtype) -> Result<Vec<Launch>, GpuError>;
}
