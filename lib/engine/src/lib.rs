//! The embedding run: read, compute, write.
//!
//! Three threads and two bounded queues. A reader walks the mapped batches files ahead of the computation, the
//! calling thread computes, and a writer turns vectors into row groups, so that the device never waits for a disk:
//!
//! ```text
//! batches files ──reader──▶ [--prefetch packs] ──compute──▶ [results] ──writer──▶ embeddings file, run events
//! ```

mod config;
mod error;
mod journal;
mod output;
mod plan;
mod reader;
mod run;
mod writer;

pub use config::{Config, Layers};
pub use error::EngineError;
pub use run::{Observer, Outcome, Summary, embed};
