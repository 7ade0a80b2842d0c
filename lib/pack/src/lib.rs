//! Packing: pure functions from sequence lengths to batches.
//!
//! A batch is a set of sequences that a variable-length kernel computes together, without padding. Its only limit is a budget of
//! tokens. [`pack`] fills batches by best-fit decreasing, one section of the input after another, so that results can be written in
//! input order. Sequences with the same key stay together: the windows of a protein. [`PackingReport`] reports how full the batches
//! are, and the cost of padding.
//!
//! ```
//! use plmkit_pack::{PackingReport, pack};
//!
//! let lengths = [60, 40, 50, 40, 10]; // tokens, <cls> and <eos> included
//! let proteins = ["A", "B", "C", "C", "D"]; // C is two windows
//! let batches = pack(&lengths, &proteins, 100);
//! assert_eq!(batches, [vec![2, 3, 4], vec![0, 1]]);
//!
//! let report = PackingReport::new(&batches, &lengths, 100);
//! assert_eq!(report.utilization, Some(1.0));
//! ```

mod packing;
mod padded;
mod report;

pub use packing::pack;
pub use padded::PaddedCost;
pub use report::{PackingReport, Tail};
