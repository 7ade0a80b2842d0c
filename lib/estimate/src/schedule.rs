//! When the last of some tasks ends.

use std::num::NonZeroU32;

/// Returns when the last task ends, if each starts in order on the first of `workers` that is free. In the unit of the tasks.
pub(super) fn makespan(tasks: &[f64], workers: NonZeroU32) -> f64 {
    let workers = (workers.get() as usize).min(tasks.len().max(1));
    let mut free = vec![0.0; workers];
    for task in tasks {
        // The first that is free, kept last: times are sorted from the latest to the earliest.
        let end = free.pop().unwrap_or(0.0) + task;
        let place = free.partition_point(|&other| other > end);
        free.insert(place, end);
    }
    free.first().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)]
    fn tasks_start_in_order_on_the_first_free_worker() {
        let of = |tasks: &[f64], workers| makespan(tasks, NonZeroU32::new(workers).unwrap());
        assert_eq!(of(&[3.0, 1.0, 1.0, 1.0], 1), 6.0);
        assert_eq!(of(&[3.0, 1.0, 1.0, 1.0], 2), 3.0);
        assert_eq!(of(&[1.0, 1.0, 1.0, 3.0], 2), 4.0);
        assert_eq!(of(&[3.0, 1.0], u32::MAX), 3.0);
        assert_eq!(of(&[], 4), 0.0);
    }
}
