//! The embedding run: read, compute, write, and resume after an interruption.
//!
//! Three threads and two bounded queues. A reader reads batches ahead of the computation, the calling thread computes, and a writer
//! makes row groups of the vectors, so the device never waits for a disk:
//!
//! ```text
//! batches files ──reader──▶ [--prefetch batches] ──compute──▶ [results] ──writer──▶ run events
//!                    ▲                                                   ├────▶ blocks ──encoders──▶ embeddings file
//!                    └────────────────── parts of an interrupted run ◀───┴────▶ parts
//! ```
//!
//! An [`Engine`] makes any number of outputs with one model. What exists is compared with what the model is said to be, before its
//! weights are loaded, and a complete output is kept without them.
//!
//! The output grows in *blocks*: consecutive batches whose bounds follow from the batches files. Each block is encoded once, by
//! several threads, and stays where it was written; a record lists the blocks in the file. The rows of the incomplete block are saved in
//! *parts*, which are removed when the block is complete. A later run continues after the last block and reads the rows of parts
//! instead of computing them, so its output equals that of an uninterrupted run, to the byte.
//!
//! The windows of a protein are stitched into one row, at the place of the last window, while they are computed. A part ends only
//! where no protein is unfinished, so the state of stitching is never saved.

mod batch;
mod checkpoint;
mod claim;
mod columns;
mod computation;
mod config;
mod crash_marks;
mod embedder;
mod engine;
mod error;
mod event_log;
mod inputs;
mod masking;
mod model;
mod outcome;
mod parity;
mod parity_sample;
mod pipeline;
mod probe;
mod rejects_list;
mod run;
mod scores;
mod stitch;
mod token_limit;
mod work;

pub use checkpoint::{has_saved_batches, run_folder};
pub use config::{Injection, Job, RunConfig, Windows, rejects_beside};
pub use engine::Engine;
pub use error::EngineError;
pub use outcome::{EmbedSummary, RunOutcome, RunProgress};
