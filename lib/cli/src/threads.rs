//! The threads of a program that was not told how many.

use std::env;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Returns the default of `--threads`: the CPUs that this process may use by its affinity and control group, limited to those that
/// SLURM gave to the task. A task without a control group sees all CPUs of its node.
pub fn default_threads() -> NonZero<usize> {
    let of_task = env::var("SLURM_CPUS_PER_TASK").ok();
    limited(available_threads(), of_task.as_deref())
}

/// Returns the CPUs that this process may use by its affinity and control group.
pub fn available_threads() -> NonZero<usize> {
    available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

fn limited(available: NonZero<usize>, of_task: Option<&str>) -> NonZero<usize> {
    let of_task = of_task.and_then(|cpus| cpus.parse().ok());
    of_task.map_or(available, |cpus: NonZero<usize>| cpus.min(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_slurm_takes_no_more_than_its_cpus() {
        let available = NonZero::new(8).expect("not 0");
        for (of_task, expected) in [
            (None, 8),
            (Some("2"), 2),
            (Some("64"), 8),
            (Some("0"), 8),
            (Some("none"), 8),
        ] {
            assert_eq!(limited(available, of_task).get(), expected, "{of_task:?}");
        }
    }
}
