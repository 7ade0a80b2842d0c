//! What the tests share.

mod error;
mod pack;
mod proteins;
mod tiny;
pub mod torch_file;

use std::path::PathBuf;

use plmkit_esm2::Esm2;
use plmkit_kit::Stop;

pub use error::{cosine, relative_error};
pub use pack::Pack;
pub use proteins::{Protein, protein, proteins};
pub use tiny::{Part, Tiny, load};

/// The largest error in f32 that is rounding and not a mistake, as [`relative_error`] measures it.
pub const ROUNDING: f64 = 2e-5;

/// A file of the repository's `test-data`.
pub fn test_data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../test-data")
        .join(name)
}

/// model-tiny: 4 layers of 64 channels, 4 heads, outlier channels, frequencies rounded to f16.
pub fn model_tiny() -> Esm2 {
    Esm2::load(
        &test_data("model-tiny"),
        plmkit_esm2::ComputeOptions::default(),
        &Stop::default(),
    )
    .unwrap()
}
