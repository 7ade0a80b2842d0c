//! Which worker computes which batches, and in which order results leave: no clock, no process, no file.
//!
//! A *group* is batches that one worker computes one after the other.

use std::collections::VecDeque;

/// How often workers may be lost over a group before it is given up.
pub(crate) const TRIES: usize = 3;
/// Groups that a worker has in hand: the next one lies ready when one is complete.
pub(crate) const IN_HAND: usize = 2;

/// Groups in order. They are handed out to whoever is free and leave in the order in which they came.
#[derive(Debug)]
pub(crate) struct Schedule<G, R> {
    /// Those that have not left.
    groups: VecDeque<Entry<G, R>>,
    /// The number of the first of these.
    first: u64,
    /// The most that may be here at once.
    window: usize,
}

#[derive(Debug)]
struct Entry<G, R> {
    group: G,
    state: State<R>,
    /// The workers that were lost with this group in hand, in that order.
    lost_by: Vec<usize>,
}

impl<G, R> Entry<G, R> {
    /// Whether it may be the reason that a worker was lost.
    fn is_suspect(&self) -> bool {
        !self.lost_by.is_empty()
    }
}

#[derive(Debug, PartialEq)]
enum State<R> {
    Waiting,
    With(usize),
    Done(R),
}

impl<G, R> Schedule<G, R> {
    /// For groups of which no more than `window` are underway at once, finished ones that wait for others included.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            first: 0,
            window,
        }
    }

    /// Whether another group may come.
    pub(crate) fn has_room(&self) -> bool {
        self.groups.len() < self.window
    }

    /// Whether everything that came has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A group comes, to be computed.
    pub(crate) fn add(&mut self, group: G) {
        self.enter(group, State::Waiting);
    }

    /// A group comes that needs no computing.
    pub(crate) fn add_done(&mut self, group: G, result: R) {
        self.enter(group, State::Done(result));
    }

    fn enter(&mut self, group: G, state: State<R>) {
        self.groups.push_back(Entry {
            group,
            state,
            lost_by: Vec::new(),
        });
    }

    /// A group for `worker`, one of those that are there, if there is one that it may have, with its number.
    ///
    /// A group with which a worker was lost is computed with no other in hand, so that it is known whose fault the next loss
    /// is, by one that was not lost with it, if there is one, and only while it is `calm`: what takes several workers at once is not
    /// to count several times.
    pub(crate) fn hand_out(
        &mut self,
        worker: usize,
        there: &[usize],
        calm: bool,
    ) -> Option<(u64, &G)> {
        let held = |entry: &&Entry<G, R>| matches!(entry.state, State::With(by) if by == worker);
        let in_hand = self.groups.iter().filter(held).count();
        if in_hand >= IN_HAND || self.groups.iter().filter(held).any(Entry::is_suspect) {
            return None;
        }
        let may = |entry: &Entry<G, R>| {
            matches!(entry.state, State::Waiting)
                && (!entry.lost_by.contains(&worker)
                    || there.iter().all(|other| entry.lost_by.contains(other)))
        };
        let suspect = |entry: &Entry<G, R>| calm && entry.is_suspect() && may(entry);
        let other = |entry: &Entry<G, R>| !entry.is_suspect() && may(entry);
        let place = match self.groups.iter().position(suspect) {
            Some(_) if in_hand > 0 => return None,
            Some(place) => place,
            None => self.groups.iter().position(other)?,
        };
        let entry = &mut self.groups[place];
        entry.state = State::With(worker);
        Some((self.first + place as u64, &entry.group))
    }

    /// Whether a worker has a group in hand.
    pub(crate) fn is_busy(&self, worker: usize) -> bool {
        let mut states = self.groups.iter().map(|entry| &entry.state);
        states.any(|state| matches!(state, State::With(by) if *by == worker))
    }

    /// The group of this number, while it is here.
    pub(crate) fn group(&self, number: u64) -> Option<&G> {
        let place = number.checked_sub(self.first)?;
        self.groups.get(place as usize).map(|entry| &entry.group)
    }

    /// Sets the result of a group.
    pub(crate) fn complete(&mut self, number: u64, result: R) {
        let place = (number - self.first) as usize;
        self.groups[place].state = State::Done(result);
    }

    /// A worker is lost: what it had in hand waits again. Returns these groups by number, with how often workers were lost
    /// with each.
    pub(crate) fn take_back(&mut self, worker: usize) -> Vec<(u64, usize)> {
        let numbered = (self.first..).zip(&mut self.groups);
        let held =
            numbered.filter(|(_, entry)| matches!(entry.state, State::With(by) if by == worker));
        held.map(|(number, entry)| {
            entry.state = State::Waiting;
            entry.lost_by.push(worker);
            (number, entry.lost_by.len())
        })
        .collect()
    }

    /// The next group that leaves, if it is complete.
    pub(crate) fn pop_complete(&mut self) -> Option<(G, R)> {
        match self.groups.front()?.state {
            State::Done(_) => {}
            _ => return None,
        }
        let entry = self.groups.pop_front()?;
        self.first += 1;
        match entry.state {
            State::Done(result) => Some((entry.group, result)),
            _ => unreachable!("it is complete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(groups: &[char]) -> Schedule<char, u32> {
        let mut schedule = Schedule::new(8);
        for &group in groups {
            schedule.add(group);
        }
        schedule
    }

    fn hand_out(schedule: &mut Schedule<char, u32>, worker: usize) -> Option<char> {
        schedule
            .hand_out(worker, &[0, 1], true)
            .map(|(_, &group)| group)
    }

    #[test]
    fn whoever_is_free_gets_the_next_and_no_one_more_than_two() {
        let mut schedule = schedule(&['a', 'b', 'c', 'd']);
        assert_eq!(hand_out(&mut schedule, 0), Some('a'));
        assert_eq!(hand_out(&mut schedule, 1), Some('b'));
        assert_eq!(hand_out(&mut schedule, 0), Some('c'));
        assert_eq!(hand_out(&mut schedule, 0), None);
        schedule.complete(0, 10);
        assert_eq!(hand_out(&mut schedule, 0), Some('d'));
        assert_eq!(hand_out(&mut schedule, 1), None, "nothing waits");
        assert!(schedule.is_busy(1));
        schedule.complete(1, 10);
        assert!(!schedule.is_busy(1));
    }

    #[test]
    fn units_leave_in_the_order_in_which_they_came() {
        let mut schedule = schedule(&['a', 'b']);
        schedule.add_done('s', 30);
        for worker in [0, 1] {
            hand_out(&mut schedule, worker);
        }
        schedule.complete(1, 20);
        assert_eq!(schedule.pop_complete(), None, "the first is not complete");
        schedule.complete(0, 10);
        let left: Vec<_> = std::iter::from_fn(|| schedule.pop_complete()).collect();
        assert_eq!(left, [('a', 10), ('b', 20), ('s', 30)]);
        assert!(schedule.is_empty());
        schedule.add('c');
        assert_eq!(schedule.hand_out(0, &[0], true), Some((3, &'c')));
        assert_eq!((schedule.group(3), schedule.group(2)), (Some(&'c'), None));
    }

    #[test]
    fn the_window_counts_what_is_through_and_has_not_left() {
        let mut schedule: Schedule<char, u32> = Schedule::new(2);
        schedule.add('a');
        schedule.add_done('b', 1);
        assert!(!schedule.has_room());
        schedule.hand_out(0, &[0], true);
        schedule.complete(0, 1);
        schedule.pop_complete();
        assert!(schedule.has_room());
    }

    #[test]
    fn what_was_lost_is_computed_alone_and_by_another() {
        let mut schedule = schedule(&['a', 'b', 'c', 'd']);
        for _ in 0..2 {
            hand_out(&mut schedule, 0);
        }
        assert_eq!(schedule.take_back(0), [(0, 1), (1, 1)]);
        assert_eq!(
            hand_out(&mut schedule, 0),
            Some('c'),
            "a and b are for others"
        );
        assert_eq!(hand_out(&mut schedule, 1), Some('a'));
        assert_eq!(hand_out(&mut schedule, 1), None, "nothing beside a");
        schedule.complete(0, 1);
        assert_eq!(hand_out(&mut schedule, 1), Some('b'));
        assert_eq!(schedule.take_back(1), [(1, 2)]);
        let third = [0, 1, 2];
        assert_eq!(
            schedule.hand_out(1, &third, true),
            Some((3, &'d')),
            "b is for a third"
        );
        assert_eq!(schedule.hand_out(2, &third, true), Some((1, &'b')));
        assert_eq!(schedule.take_back(2), [(1, 3)]);
        assert_eq!(hand_out(&mut schedule, 0), None, "b needs empty hands");
        schedule.complete(2, 1);
        assert_eq!(hand_out(&mut schedule, 0), Some('b'), "no one is left");
    }

    #[test]
    fn what_was_lost_waits_until_it_is_calm() {
        let mut schedule = schedule(&['a', 'b']);
        hand_out(&mut schedule, 0);
        schedule.take_back(0);
        assert_eq!(schedule.hand_out(1, &[0, 1], false), Some((1, &'b')));
        assert_eq!(schedule.hand_out(1, &[0, 1], false), None);
        schedule.complete(1, 1);
        assert_eq!(schedule.hand_out(1, &[0, 1], true), Some((0, &'a')));
    }

    #[test]
    fn a_worker_with_nothing_in_hand_costs_no_unit_a_try() {
        let mut schedule = schedule(&['a']);
        assert_eq!(schedule.take_back(0), []);
        assert_eq!(hand_out(&mut schedule, 0), Some('a'));
    }
}
