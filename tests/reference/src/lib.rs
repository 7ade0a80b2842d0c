//! A plain implementation of ESM-2 for tests: loops instead of a tensor library, one sequence at a time.
//!
//! The model is that of fair-esm (Lin et al. 2023, doi:10.1126/science.ade2574). In `f64` it is the expected result. In `f32` its
//! rounding error is the measure for other implementations.
//!
//! ```
//! use plmkit_reference::{Checkpoint, Reference};
//!
//! # let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-data/model-tiny"));
//! let model = Reference::<f64>::new(Checkpoint::read(folder).unwrap());
//! let outputs = model.forward(&[0, 20, 5, 2]); // <cls> M A <eos>
//! assert_eq!((outputs.layers.len(), outputs.layers[4].len()), (5, 4));
//! assert_eq!((outputs.logits[0].len(), outputs.contacts.len()), (33, 2));
//! ```

mod checkpoint;
mod forward;
mod gelu;
mod heads;
mod matrix;

pub use checkpoint::Checkpoint;
pub use forward::{Outputs, Reference};
pub use gelu::gelu;
pub use matrix::{Matrix, Real, flat};
