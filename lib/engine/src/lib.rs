//! The embedding run: read, compute, write, and go on where an earlier run was interrupted.
//!
//! Three threads and two bounded queues. A reader walks the batches files ahead of the computation, the
//! calling thread computes, and a writer turns vectors into row groups, so that the device never waits for a disk:
//!
//! ```text
//! batches files ──reader──▶ [--prefetch batches] ──compute──▶ [results] ──writer──▶ run events
//!                    ▲                                                   ├────▶ blocks ──encoders──▶ embeddings file
//!                    └────────────────── parts of an interrupted run ◀───┴────▶ parts
//! ```
//!
//! The computation is a model in this process, or [worker processes](RunConfig::workers) with one each.
//!
//! The output grows in *blocks*: consecutive batches whose bounds follow from the batches files. A block is encoded once, by a
//! pool of threads, and stays where it was written; a record says which blocks are there. Rows of the block that is not complete
//! are saved in *parts*, which go when it is. A run that finds both goes on behind the last block and passes the rows of
//! parts on in place of computing them, so the bytes of the output are those of an uninterrupted run.
//!
//! The windows of a protein become one row, at the place of the last one, while they are computed. A part ends only
//! where no protein is unfinished, so that what lies between the batches of a protein never has to be saved.

mod backend;
mod batch;
mod batch_embedder;
mod checkpoint;
mod claim;
mod columns;
mod compute;
mod config;
mod error;
mod event_log;
mod in_process;
mod inputs;
mod model_info;
mod outcome;
mod parity;
mod pipeline;
mod probe;
mod rejects_list;
mod run;
mod sample;
mod stitch;
mod token_limit;
mod workers;
mod writer;

pub use config::{Injection, Layers, Outputs, RunConfig, Windows, rejects_beside};
pub use error::EngineError;
pub use outcome::{Progress, RunOutcome, RunSummary};
pub use parity::Parity;
pub use probe::probe;
pub use run::embed;
pub use workers::serve;
