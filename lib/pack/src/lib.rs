//! The packing planner: pure functions from sequence lengths to packs.
//!
//! A pack is a set of sequences that a variable-length kernel computes together, without padding; the only
//! limit is a budget of tokens. Filling packs is the bin-packing problem, and [`plan`] solves it by best-fit
//! decreasing, for one section of the input after the other, so that results can be written in the order of the input. [`Groups`] are sequences that have to stay together, the windows of one protein.
//! [`PackingReport`] says how full the packs are, and what a padded loader would have paid.
//!
//! ```
//! use plmkit_pack::{Groups, PackingReport, plan};
//!
//! let lengths = [60, 40, 50, 40, 10]; // tokens, <cls> and <eos> included
//! let groups = Groups::runs(["A", "B", "C", "C", "D"]); // C is two windows
//! let plan = plan(&lengths, &groups, 100);
//! let packs: Vec<&[u32]> = plan.packs().collect();
//! assert_eq!(packs, [&[2, 3, 4][..], &[0, 1][..]]);
//!
//! let report = PackingReport::new(&plan, &lengths);
//! assert_eq!(report.utilization, Some(1.0));
//! ```

mod groups;
mod levels;
mod open;
mod order;
mod padded;
mod plan;
mod report;

pub use groups::Groups;
pub use padded::PaddedCost;
pub use plan::{Plan, plan};
pub use report::{PackingReport, Tail};
