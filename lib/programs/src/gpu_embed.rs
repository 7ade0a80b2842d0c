//! `gpu-embed`: batches files to embeddings.

mod args;
mod model;
mod run;
#[cfg(feature = "testing")]
mod testing;

pub use args::Args;
pub use run::run;
