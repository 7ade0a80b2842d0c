//! Packing: pure functions from sequence lengths to batches.
//!
//! A batch is a set of sequences that a variable-length kernel computes together, without padding; the only
//! limit is a budget of tokens. Filling batches is the bin-packing problem, and [`pack`] solves it by best-fit
//! decreasing, for one section of the input after the other, so that results can be written in the order of the input. [`Groups`] are sequences that have to stay together, the windows of one protein.
//! [`PackingReport`] says how full the batches are, and what a padded loader would have paid.
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
mod open;
mod packing;
mod padded;
mod report;

pub use groups::Groups;
pub use packing::{Packing, pack};
pub use padded::PaddedCost;
pub use report::{PackingReport, Tail};
