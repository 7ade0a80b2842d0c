//! Assigning groups of batches to workers, and returning results in order. Pure: no clock, no process, no file.
//!
//! A *group* is batches that one worker computes one after the other.

use std::collections::VecDeque;

/// Workers that may crash with a group before the group is skipped.
pub(crate) const MAX_CRASHES: usize = 2;
/// Groups that a worker may hold: it starts the next one without waiting.
pub(crate) const GROUPS_PER_WORKER: usize = 2;

/// Groups of `T` with their results `R`, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Schedule<T, R> {
    groups: VecDeque<Group<T, R>>,
    /// The most groups at once.
    window: usize,
}

#[derive(Debug)]
struct Group<T, R> {
    batches: Vec<T>,
    results: Vec<R>,
    /// The worker that holds the group.
    worker: Option<usize>,
    /// The workers that crashed while they held the group, in that order.
    crashed_workers: Vec<usize>,
}

impl<T, R> Group<T, R> {
    fn is_complete(&self) -> bool {
        self.results.len() == self.batches.len() || self.is_skipped()
    }

    fn is_skipped(&self) -> bool {
        self.crashed_workers.len() >= MAX_CRASHES
    }

    /// Whether the group may be the reason that a worker crashed.
    fn is_suspect(&self) -> bool {
        !self.crashed_workers.is_empty()
    }
}

impl<T, R> Schedule<T, R> {
    /// Makes a schedule for at most `window` groups at once, complete ones that wait for others included.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            window,
        }
    }

    /// Whether another group may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.groups.len() < self.window
    }

    /// Whether all groups have left.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a group, with the results of all its batches or of none.
    pub(crate) fn add(&mut self, batches: Vec<T>, results: Vec<R>) {
        self.groups.push_back(Group {
            batches,
            results,
            worker: None,
            crashed_workers: Vec::new(),
        });
    }

    /// Assigns the next group that `worker` may have. `running` lists all running workers.
    ///
    /// A suspect group is computed with no other in hand, so that the next crash has one possible cause. It goes to a worker that
    /// has not crashed with it, if there is one, and only when it has `cooled_down`: an event that takes several workers at once must not count
    /// several times.
    pub(crate) fn assign(
        &mut self,
        worker: usize,
        running: &[usize],
        cooled_down: bool,
    ) -> Option<&[T]> {
        let in_hand = self.held_by(worker).count();
        if in_hand >= GROUPS_PER_WORKER || self.held_by(worker).any(Group::is_suspect) {
            return None;
        }
        let eligible = |group: &Group<T, R>| {
            let is_waiting = group.worker.is_none() && !group.is_complete();
            let crashed_with = |worker: &usize| group.crashed_workers.contains(worker);
            is_waiting && (!crashed_with(&worker) || running.iter().all(crashed_with))
        };
        let suspect = |group: &Group<T, R>| cooled_down && group.is_suspect() && eligible(group);
        let other = |group: &Group<T, R>| !group.is_suspect() && eligible(group);
        let place = match self.groups.iter().position(suspect) {
            Some(_) if in_hand > 0 => return None,
            Some(place) => place,
            None => self.groups.iter().position(other)?,
        };
        let group = &mut self.groups[place];
        group.worker = Some(worker);
        Some(&group.batches)
    }

    fn held_by(&self, worker: usize) -> impl Iterator<Item = &Group<T, R>> {
        let groups = self.groups.iter();
        groups.filter(move |group| group.worker == Some(worker))
    }

    /// Whether a worker holds a group.
    pub(crate) fn is_busy(&self, worker: usize) -> bool {
        self.held_by(worker).next().is_some()
    }

    /// Adds the next result of a worker, whose results come in the order in which it got the batches.
    pub(crate) fn add_result(&mut self, worker: usize, result: R) {
        let mut groups = self.groups.iter_mut();
        if let Some(group) = groups.find(|group| group.worker == Some(worker)) {
            group.results.push(result);
            if group.is_complete() {
                group.worker = None;
            }
        }
    }

    /// Requeues the groups of a crashed worker. They wait for another one, or are skipped after [`MAX_CRASHES`]. Returns the number of
    /// batches skipped.
    pub(crate) fn requeue(&mut self, worker: usize) -> usize {
        let mut skipped = 0;
        let groups = self.groups.iter_mut();
        for group in groups.filter(|group| group.worker == Some(worker)) {
            group.worker = None;
            group.results.clear();
            group.crashed_workers.push(worker);
            if group.is_skipped() {
                skipped += group.batches.len();
            }
        }
        skipped
    }

    /// Removes the first group with its results, if it is complete; with none if it is skipped.
    pub(crate) fn pop_complete(&mut self) -> Option<(Vec<T>, Option<Vec<R>>)> {
        let group = self.groups.pop_front_if(|group| group.is_complete())?;
        let results = (!group.is_skipped()).then_some(group.results);
        Some((group.batches, results))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(groups: &str) -> Schedule<char, u32> {
        let mut schedule = Schedule::new(8);
        for group in groups.chars() {
            schedule.add(vec![group], Vec::new());
        }
        schedule
    }

    fn assign(schedule: &mut Schedule<char, u32>, worker: usize) -> Option<char> {
        let batches = schedule.assign(worker, &[0, 1], true);
        batches.map(|batches| batches[0])
    }

    #[test]
    fn a_free_worker_gets_the_next_group_and_holds_at_most_two() {
        let mut schedule = schedule("abcd");
        assert_eq!(assign(&mut schedule, 0), Some('a'));
        assert_eq!(assign(&mut schedule, 1), Some('b'));
        assert_eq!(assign(&mut schedule, 0), Some('c'));
        assert_eq!(assign(&mut schedule, 0), None);
        schedule.add_result(0, 10);
        assert_eq!(assign(&mut schedule, 0), Some('d'));
        assert_eq!(assign(&mut schedule, 1), None, "nothing waits");
        assert!(schedule.is_busy(1));
        schedule.add_result(1, 10);
        assert!(!schedule.is_busy(1));
    }

    #[test]
    fn groups_leave_in_order_with_the_results_of_all_batches() {
        let mut schedule = Schedule::new(3);
        schedule.add(vec!['a', 'b'], Vec::new());
        schedule.add(vec!['c'], Vec::new());
        assert!(schedule.has_room());
        schedule.add(vec!['s'], vec![30]);
        assert!(!schedule.has_room());
        for worker in [0, 1] {
            assign(&mut schedule, worker);
        }
        schedule.add_result(1, 20);
        schedule.add_result(0, 9);
        assert_eq!(schedule.pop_complete(), None, "b is not computed");
        schedule.requeue(0);
        assign(&mut schedule, 1);
        schedule.add_result(1, 10);
        schedule.add_result(1, 11);
        let left: Vec<_> = std::iter::from_fn(|| schedule.pop_complete()).collect();
        let expected = [
            (vec!['a', 'b'], Some(vec![10, 11])),
            (vec!['c'], Some(vec![20])),
            (vec!['s'], Some(vec![30])),
        ];
        assert_eq!(left, expected);
        assert!(schedule.is_empty() && schedule.has_room());
    }

    #[test]
    fn a_lost_group_is_computed_alone_and_by_another_worker() {
        let mut schedule = schedule("abcd");
        assert_eq!(schedule.requeue(0), 0, "it holds nothing");
        for _ in 0..2 {
            assign(&mut schedule, 0);
        }
        assert_eq!(schedule.requeue(0), 0);
        let next = assign(&mut schedule, 0);
        assert_eq!(next, Some('c'), "a and b are for others");
        assert_eq!(assign(&mut schedule, 1), Some('a'));
        assert_eq!(assign(&mut schedule, 1), None, "nothing beside a");
        schedule.add_result(1, 1);
        assert_eq!(assign(&mut schedule, 1), Some('b'));
        assert_eq!(schedule.requeue(1), 1, "b is skipped");
        assert_eq!(assign(&mut schedule, 1), Some('d'));
        schedule.add_result(0, 3);
        schedule.add_result(1, 4);
        let results: Vec<_> = std::iter::from_fn(|| schedule.pop_complete()).collect();
        let results: Vec<u32> = results
            .into_iter()
            .flat_map(|(_, results)| results.unwrap_or_else(|| vec![99]))
            .collect();
        assert_eq!(results, [1, 99, 3, 4]);
    }

    #[test]
    fn a_lost_group_waits_for_the_cooldown_and_may_return_to_the_last_worker() {
        let mut schedule = schedule("ab");
        assign(&mut schedule, 0);
        schedule.requeue(0);
        assert_eq!(schedule.assign(1, &[0, 1], false), Some(&['b'][..]));
        assert_eq!(schedule.assign(1, &[0, 1], false), None);
        assert_eq!(assign(&mut schedule, 1), None, "a needs empty hands");
        schedule.add_result(1, 1);
        let alone = schedule.assign(0, &[0], true);
        assert_eq!(alone, Some(&['a'][..]), "no other is left");
    }
}
