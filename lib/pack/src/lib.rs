//! The packing planner: pure functions from sequence lengths to packs.
//!
//! A pack is a set of sequences that a variable-length kernel computes together, without padding; the only
//! limit is a budget of tokens. Filling packs is the bin-packing problem, and [`plan`] solves it by best-fit
//! decreasing. [`PackingReport`] says how full the packs are, and what a padded loader would have paid.
//!
//! ```
//! use plmkit_pack::{PackingReport, plan};
//!
//! let lengths = [60, 30, 50, 40, 20]; // tokens, <cls> and <eos> included
//! let plan = plan(&lengths, 100);
//! let packs: Vec<&[u32]> = plan.packs().collect();
//! assert_eq!(packs, [&[0, 3][..], &[2, 1, 4][..]]);
//!
//! let report = PackingReport::new(&plan, &lengths);
//! assert_eq!(report.utilization, Some(1.0));
//! ```

mod levels;
mod open;
mod order;
mod padded;
mod plan;
mod report;

pub use padded::PaddedCost;
pub use plan::{Plan, plan};
pub use report::{PackingReport, Tail};
