//! The embedding run: read, compute, write, and go on where an earlier run was interrupted.
//!
//! Three threads and two bounded queues. A reader walks the mapped batches files ahead of the computation, the
//! calling thread computes, and a writer turns vectors into row groups, so that the device never waits for a disk:
//!
//! ```text
//! batches files ──reader──▶ [--prefetch packs] ──compute──▶ [results] ──writer──▶ embeddings file, run events
//!                    ▲                                                    └────▶ parts
//!                    └────────────────── parts of an interrupted run ◀────────────┘
//! ```
//!
//! The computation is a model in this process, or [worker processes](Config::workers) with one each.
//!
//! The writer saves every result twice: in the output, which appears when it is complete, and in parts, each of
//! which is complete when it appears. A run that finds parts passes their rows on in place of computing them. The
//! output sees the same rows in the same order either way, so its bytes are those of an uninterrupted run.
//!
//! The windows of a protein become one row, at the place of the last one, while they are computed. A part ends only
//! where no protein is unfinished, so that what lies between the packs of a protein never has to be saved.

mod allowance;
mod backend;
mod compute;
mod config;
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
