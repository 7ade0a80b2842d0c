//! The embedding run: read, compute, write, and go on where an earlier run was interrupted.
//!
//! Three threads and two bounded queues. A reader walks the batches files ahead of the computation, the
//! calling thread computes, and a writer turns vectors into row groups, so that the device never waits for a disk:
//!
//! ```text
//! batches files ──reader──▶ [--prefetch packs] ──compute──▶ [results] ──writer──▶ run events
//!                    ▲                                                   ├────▶ blocks ──encoders──▶ embeddings file
//!                    └────────────────── parts of an interrupted run ◀───┴────▶ parts
//! ```
//!
//! The computation is a model in this process, or [worker processes](Config::workers) with one each.
//!
//! The output grows in *blocks*: consecutive batches whose bounds follow from the batches files. A block is encoded once, by a
//! pool of threads, and stays where it was written; a record says which blocks are there. Rows of the block that is not complete
//! are saved in *parts*, which go when it is. A run that finds both goes on behind the last block and passes the rows of
//! parts on in place of computing them, so the bytes of the output are those of an uninterrupted run.
//!
//! The windows of a protein become one row, at the place of the last one, while they are computed. A part ends only
//! where no protein is unfinished, so that what lies between the packs of a protein never has to be saved.

mod allowance;
mod backend;
mod block;
mod compute;
mod config;
mod encoders;
mod error;
mod facts;
mod in_process;
mod journal;
mod output;
mod pack;
mod parity;
mod part;
mod pipeline;
mod plan;
mod probe;
mod reader;
mod rejects;
mod run;
mod run_folder;
mod saved;
mod selection;
mod stitch;
mod workers;
mod writer;

pub use config::{Config, Injection, Layers, Outputs, Windows, rejects_beside};
pub use error::EngineError;
pub use parity::Parity;
pub use probe::probe;
pub use run::{Observer, Outcome, Summary, embed};
pub use workers::serve;
