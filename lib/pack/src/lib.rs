//! Packing: pure functions from sequence lengths to batches.
//!
//! A batch is a set of sequences that a variable-length kernel computes together, without padding. Its only limit is a budget of
//! tokens. [`pack`] fills batches by best-fit decreasing, one section of the input after another, so that results can be written in
//! input order. [`Groups`] are sequences that stay together: the windows of a protein. [`PackingReport`] reports how full the
//! batches are, and the cost of padding.
//!
//! ```
//! use plmkit_pack::{Groups, PackingReport, pack};
//!
//! let lengths = [60, 40, 50, 40, 10]; // tokens, <cls> and <eos> included
//! let groups = Groups::runs(["A", "B", "C", "C", "D"]); // C is two windows
//! let packing = pack(&lengths, &groups, 100);
//! let batches: Vec<&[u32]> = packing.batches().collect();
//! assert_eq!(batches, [&[2, 3, 4][..], &[0, 1][..]]);
//!
//! let report = PackingReport::new(&packing, &lengths);
//! assert_eq!(report.utilization, Some(1.0));
//! ```

mod filling;
mod groups;
mod packing;
mod padded;
mod report;

pub use groups::Groups;
pub use packing::{Packing, pack};
pub use padded::PaddedCost;
pub use report::{PackingReport, Tail};
