//! `gpu-embed`: batches files to embeddings.

mod args;
mod child;
mod model;
mod run;
mod session;
#[cfg(feature = "testing")]
mod testing;

pub use args::{Args, ComputationOptions, Options, threads};
pub use child::{Child, Request, ShardFiles, prepare};
pub use run::run;
pub use session::{Session, log_rejected};
