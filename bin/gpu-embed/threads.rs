//! How many threads to start where nobody says.

use std::env;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

/// The CPUs that this process may use, by its affinity and its control group, and of these no more than SLURM gave to the
/// task: without a control group around it, a task sees all CPUs of its node.
pub(crate) fn default_threads() -> NonZeroUsize {
    let available = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let of_task = env::var("SLURM_CPUS_PER_TASK").ok();
    of_task
        .and_then(|cpus| cpus.parse().ok())
        .map_or(available, |cpus: NonZeroUsize| cpus.min(available))
}
