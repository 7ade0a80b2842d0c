//! Assigning groups of batches to workers, and returning results in order. Pure: no clock, no process, no file.
//!
//! A *group* is batches that one worker computes one after the other.

use std::collections::VecDeque;

/// Workers that may crash with a group before the group is skipped.
pub(crate) const MAX_CRASHES: usize = 2;
/// Groups that a worker may hold: it starts the next one without waiting.
pub(crate) const GROUPS_PER_WORKER: usize = 2;

/// Groups of batches `T`, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    groups: VecDeque<Group<T>>,
    /// The most groups at once.
    window: usize,
}

#[derive(Debug)]
struct Group<T> {
    batches: Vec<T>,
    /// The first of them, computed.
    computed: Vec<T>,
    /// The worker that holds the group.
    worker: Option<usize>,
    /// The workers that crashed while they held the group, in that order.
    crashed_workers: Vec<usize>,
}

impl<T> Group<T> {
    fn is_complete(&self) -> bool {
        self.computed.len() >= self.batches.len() || self.is_skipped()
    }

    fn is_skipped(&self) -> bool {
        self.crashed_workers.len() >= MAX_CRASHES
    }

    /// Whether the group may be the reason that a worker crashed.
    fn is_suspect(&self) -> bool {
        !self.crashed_workers.is_empty()
    }
}

impl<T> Schedule<T> {
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

    /// Adds a group of batches to compute, or of computed ones.
    pub(crate) fn add(&mut self, batches: Vec<T>, computed: Vec<T>) {
        self.groups.push_back(Group {
            batches,
            computed,
            worker: None,
            crashed_workers: Vec::new(),
        });
    }

    /// Assigns the next group that `worker` may have. `ready` lists all workers that can compute.
    ///
    /// A suspect group is computed with no other in hand, so that the next crash has one possible cause. It goes to a worker that
    /// has not crashed with it, if there is one, and only when it has `cooled_down`: an event that takes several workers at once must not count
    /// several times.
    pub(crate) fn assign(
        &mut self,
        worker: usize,
        ready: &[usize],
        cooled_down: bool,
    ) -> Option<&[T]> {
        let in_hand = self.held_by(worker).count();
        if in_hand >= GROUPS_PER_WORKER || self.held_by(worker).any(Group::is_suspect) {
            return None;
        }
        let eligible = |group: &Group<T>| {
            let is_waiting = group.worker.is_none() && !group.is_complete();
            let crashed_with = |worker: &usize| group.crashed_workers.contains(worker);
            is_waiting && (!crashed_with(&worker) || ready.iter().all(crashed_with))
        };
        let suspect = |group: &Group<T>| cooled_down && group.is_suspect() && eligible(group);
        let other = |group: &Group<T>| !group.is_suspect() && eligible(group);
        let place = match self.groups.iter().position(suspect) {
            Some(_) if in_hand > 0 => return None,
            Some(place) => place,
            None => self.groups.iter().position(other)?,
        };
        let group = &mut self.groups[place];
        group.worker = Some(worker);
        Some(&group.batches)
    }

    fn held_by(&self, worker: usize) -> impl Iterator<Item = &Group<T>> {
        let groups = self.groups.iter();
        groups.filter(move |group| group.worker == Some(worker))
    }

    /// Whether a worker holds a group.
    pub(crate) fn is_busy(&self, worker: usize) -> bool {
        self.held_by(worker).next().is_some()
    }

    /// Adds the next computed batch of a worker, in the order in which it got them.
    pub(crate) fn add_computed(&mut self, worker: usize, batch: T) {
        let mut groups = self.groups.iter_mut();
        if let Some(group) = groups.find(|group| group.worker == Some(worker)) {
            group.computed.push(batch);
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
            group.computed.clear();
            group.crashed_workers.push(worker);
            if group.is_skipped() {
                skipped += group.batches.len();
            }
        }
        skipped
    }

    /// Removes the first group, if it is complete. Returns its computed batches or, if it is skipped, the batches in the second place.
    pub(crate) fn pop_complete(&mut self) -> Option<(Vec<T>, Vec<T>)> {
        let group = self.groups.pop_front_if(|group| group.is_complete())?;
        Some(if group.is_skipped() {
            (Vec::new(), group.batches)
        } else {
            (group.computed, Vec::new())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(groups: &str) -> Schedule<char> {
        let mut schedule = Schedule::new(8);
        for group in groups.chars() {
            schedule.add(vec![group], Vec::new());
        }
        schedule
    }

    fn assign(schedule: &mut Schedule<char>, worker: usize) -> Option<char> {
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
        schedule.add_computed(0, 'A');
        assert_eq!(assign(&mut schedule, 0), Some('d'));
        assert_eq!(assign(&mut schedule, 1), None, "nothing waits");
        assert!(schedule.is_busy(1));
        schedule.add_computed(1, 'B');
        assert!(!schedule.is_busy(1));
    }

    #[test]
    fn groups_leave_in_order_with_the_results_of_all_batches() {
        let mut schedule = Schedule::new(3);
        schedule.add(vec!['a', 'b'], Vec::new());
        schedule.add(vec!['c'], Vec::new());
        assert!(schedule.has_room());
        schedule.add(Vec::new(), vec!['S']);
        assert!(!schedule.has_room());
        for worker in [0, 1] {
            assign(&mut schedule, worker);
        }
        schedule.add_computed(1, 'C');
        schedule.add_computed(0, 'X');
        assert_eq!(schedule.pop_complete(), None, "b is not computed");
        schedule.requeue(0);
        assign(&mut schedule, 1);
        schedule.add_computed(1, 'A');
        schedule.add_computed(1, 'B');
        let left: Vec<_> = std::iter::from_fn(|| schedule.pop_complete()).collect();
        let expected = [
            (vec!['A', 'B'], vec![]),
            (vec!['C'], vec![]),
            (vec!['S'], vec![]),
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
        schedule.add_computed(1, 'A');
        assert_eq!(assign(&mut schedule, 1), Some('b'));
        assert_eq!(schedule.requeue(1), 1, "b is skipped");
        assert_eq!(assign(&mut schedule, 1), Some('d'));
        schedule.add_computed(0, 'C');
        schedule.add_computed(1, 'D');
        let left: Vec<_> = std::iter::from_fn(|| schedule.pop_complete()).collect();
        let expected = [
            (vec!['A'], vec![]),
            (vec![], vec!['b']),
            (vec!['C'], vec![]),
            (vec!['D'], vec![]),
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn a_lost_group_waits_for_the_cooldown_and_may_return_to_the_last_worker() {
        let mut schedule = schedule("ab");
        assign(&mut schedule, 0);
        schedule.requeue(0);
        assert_eq!(schedule.assign(1, &[0, 1], false), Some(&['b'][..]));
        assert_eq!(schedule.assign(1, &[0, 1], false), None);
        assert_eq!(assign(&mut schedule, 1), None, "a needs empty hands");
        schedule.add_computed(1, 'B');
        let alone = schedule.assign(0, &[0], true);
        assert_eq!(alone, Some(&['a'][..]), "no other is left");
    }
}
