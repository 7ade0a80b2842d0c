//! Runs while they work: their event logs, followed as they grow, and their progress.
//!
//! [`Follower`] reads files. [`LiveRuns`] keeps the runs and computes each [`RunStatus`], without files or clocks.

mod follower;
mod processes;
mod recent_batches;
mod run;
mod runs;
mod status;

pub use follower::Follower;
pub use processes::{ProcessStatus, processes};
pub use runs::LiveRuns;
pub use status::{LiveProgress, Recent, RunState, RunStatus};
