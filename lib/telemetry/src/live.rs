//! Runs while they work: their event logs followed as they grow, and where each of them stands.
//!
//! [`Follower`] reads, [`LiveRuns`] keeps what was read, [`RunStatus`] says it. Only the first touches files.

mod follower;
mod log_tail;
mod recent_batches;
mod run;
mod runs;
mod status;

pub use follower::{Follower, FollowerUpdate};
pub use runs::LiveRuns;
pub use status::{Progress, Recent, RunState, RunStatus};
