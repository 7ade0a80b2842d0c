//! Who computes what, and in which order results leave: no clock, no process, no file.

use std::collections::VecDeque;

/// How often workers may be lost over a unit of work before it is given up.
pub(crate) const TRIES: usize = 3;
/// Units that a worker has in hand: the next one lies ready when one is through.
pub(crate) const IN_HAND: usize = 2;

/// Units of work in order. They are handed out to whoever is free and leave in the order in which they came.
#[derive(Debug)]
pub(crate) struct Schedule<U, R> {
    /// Those that have not left.
    units: VecDeque<Entry<U, R>>,
    /// The number of the first of these.
    first: u64,
    /// The most that may be here at once.
    window: usize,
}

#[derive(Debug)]
struct Entry<U, R> {
    unit: U,
    state: State<R>,
    /// The workers that were lost with this unit in hand, in that order.
    lost_by: Vec<usize>,
}

impl<U, R> Entry<U, R> {
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

impl<U, R> Schedule<U, R> {
    /// For units of which no more than `window` are underway at once, finished ones that wait for others included.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            units: VecDeque::new(),
            first: 0,
            window,
        }
    }

    /// Whether another unit may come.
    pub(crate) fn has_room(&self) -> bool {
        self.units.len() < self.window
    }

    /// Whether everything that came has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// A unit comes, to be computed.
    pub(crate) fn add(&mut self, unit: U) {
        self.enter(unit, State::Waiting);
    }

    /// A unit comes that needs no computing.
    pub(crate) fn add_done(&mut self, unit: U, result: R) {
        self.enter(unit, State::Done(result));
    }

    fn enter(&mut self, unit: U, state: State<R>) {
        self.units.push_back(Entry {
            unit,
            state,
            lost_by: Vec::new(),
        });
    }

    /// A unit for `worker`, one of those that are there, if there is one that it may have, with its number.
    ///
    /// A unit with which a worker was lost is computed with no other in hand, so that it is known whose fault the next loss
    /// is, by one that was not lost with it, if there is one, and only while it is `calm`: what takes several workers at once is not
    /// to count several times.
    pub(crate) fn hand_out(
        &mut self,
        worker: usize,
        there: &[usize],
        calm: bool,
    ) -> Option<(u64, &U)> {
        let held = |entry: &&Entry<U, R>| matches!(entry.state, State::With(by) if by == worker);
        let in_hand = self.units.iter().filter(held).count();
        if in_hand >= IN_HAND || self.units.iter().filter(held).any(Entry::is_suspect) {
            return None;
        }
        let may = |entry: &Entry<U, R>| {
            matches!(entry.state, State::Waiting)
                && (!entry.lost_by.contains(&worker)
                    || there.iter().all(|other| entry.lost_by.contains(other)))
        };
        let suspect = |entry: &Entry<U, R>| calm && entry.is_suspect() && may(entry);
        let other = |entry: &Entry<U, R>| !entry.is_suspect() && may(entry);
        let place = match self.units.iter().position(suspect) {
            Some(_) if in_hand > 0 => return None,
            Some(place) => place,
            None => self.units.iter().position(other)?,
        };
        let entry = &mut self.units[place];
        entry.state = State::With(worker);
        Some((self.first + place as u64, &entry.unit))
    }

    /// Whether a worker has a unit in hand.
    pub(crate) fn is_busy(&self, worker: usize) -> bool {
        let mut states = self.units.iter().map(|entry| &entry.state);
        states.any(|state| matches!(state, State::With(by) if *by == worker))
    }

    /// The unit of this number, while it is here.
    pub(crate) fn unit(&self, number: u64) -> Option<&U> {
        let place = number.checked_sub(self.first)?;
        self.units.get(place as usize).map(|entry| &entry.unit)
    }

    /// A unit is through.
    pub(crate) fn done(&mut self, number: u64, result: R) {
        let place = (number - self.first) as usize;
        self.units[place].state = State::Done(result);
    }

    /// A worker is lost: what it had in hand waits again. Returns these units by number, with how often workers were lost
    /// with each.
    pub(crate) fn lost(&mut self, worker: usize) -> Vec<(u64, usize)> {
        let numbered = (self.first..).zip(&mut self.units);
        let held =
            numbered.filter(|(_, entry)| matches!(entry.state, State::With(by) if by == worker));
        held.map(|(number, entry)| {
            entry.state = State::Waiting;
            entry.lost_by.push(worker);
            (number, entry.lost_by.len())
        })
        .collect()
    }

    /// The next unit that leaves, if it is through.
    pub(crate) fn leave(&mut self) -> Option<(U, R)> {
        match self.units.front()?.state {
            State::Done(_) => {}
            _ => return None,
        }
        let entry = self.units.pop_front()?;
        self.first += 1;
        match entry.state {
            State::Done(result) => Some((entry.unit, result)),
            _ => unreachable!("it is through"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(units: &[char]) -> Schedule<char, u32> {
        let mut schedule = Schedule::new(8);
        for &unit in units {
            schedule.add(unit);
        }
        schedule
    }

    fn hand_out(schedule: &mut Schedule<char, u32>, worker: usize) -> Option<char> {
        schedule
            .hand_out(worker, &[0, 1], true)
            .map(|(_, &unit)| unit)
    }

    #[test]
    fn whoever_is_free_gets_the_next_and_no_one_more_than_two() {
        let mut schedule = schedule(&['a', 'b', 'c', 'd']);
        assert_eq!(hand_out(&mut schedule, 0), Some('a'));
        assert_eq!(hand_out(&mut schedule, 1), Some('b'));
        assert_eq!(hand_out(&mut schedule, 0), Some('c'));
        assert_eq!(hand_out(&mut schedule, 0), None);
        schedule.done(0, 10);
        assert_eq!(hand_out(&mut schedule, 0), Some('d'));
        assert_eq!(hand_out(&mut schedule, 1), None, "nothing waits");
        assert!(schedule.is_busy(1));
        schedule.done(1, 10);
        assert!(!schedule.is_busy(1));
    }

    #[test]
    fn units_leave_in_the_order_in_which_they_came() {
        let mut schedule = schedule(&['a', 'b']);
        schedule.add_done('s', 30);
        for worker in [0, 1] {
            hand_out(&mut schedule, worker);
        }
        schedule.done(1, 20);
        assert_eq!(schedule.leave(), None, "the first is not through");
        schedule.done(0, 10);
        let left: Vec<_> = std::iter::from_fn(|| schedule.leave()).collect();
        assert_eq!(left, [('a', 10), ('b', 20), ('s', 30)]);
        assert!(schedule.is_empty());
        schedule.add('c');
        assert_eq!(schedule.hand_out(0, &[0], true), Some((3, &'c')));
        assert_eq!((schedule.unit(3), schedule.unit(2)), (Some(&'c'), None));
    }

    #[test]
    fn the_window_counts_what_is_through_and_has_not_left() {
        let mut schedule: Schedule<char, u32> = Schedule::new(2);
        schedule.add('a');
        schedule.add_done('b', 1);
        assert!(!schedule.has_room());
        schedule.hand_out(0, &[0], true);
        schedule.done(0, 1);
        schedule.leave();
        assert!(schedule.has_room());
    }

    #[test]
    fn what_was_lost_is_computed_alone_and_by_another() {
        let mut schedule = schedule(&['a', 'b', 'c', 'd']);
        for _ in 0..2 {
            hand_out(&mut schedule, 0);
        }
        assert_eq!(schedule.lost(0), [(0, 1), (1, 1)]);
        assert_eq!(
            hand_out(&mut schedule, 0),
            Some('c'),
            "a and b are for others"
        );
        assert_eq!(hand_out(&mut schedule, 1), Some('a'));
        assert_eq!(hand_out(&mut schedule, 1), None, "nothing beside a");
        schedule.done(0, 1);
        assert_eq!(hand_out(&mut schedule, 1), Some('b'));
        assert_eq!(schedule.lost(1), [(1, 2)]);
        let third = [0, 1, 2];
        assert_eq!(
            schedule.hand_out(1, &third, true),
            Some((3, &'d')),
            "b is for a third"
        );
        assert_eq!(schedule.hand_out(2, &third, true), Some((1, &'b')));
        assert_eq!(schedule.lost(2), [(1, 3)]);
        assert_eq!(hand_out(&mut schedule, 0), None, "b needs empty hands");
        schedule.done(2, 1);
        assert_eq!(hand_out(&mut schedule, 0), Some('b'), "no one is left");
    }

    #[test]
    fn what_was_lost_waits_until_it_is_calm() {
        let mut schedule = schedule(&['a', 'b']);
        hand_out(&mut schedule, 0);
        schedule.lost(0);
        assert_eq!(schedule.hand_out(1, &[0, 1], false), Some((1, &'b')));
        assert_eq!(schedule.hand_out(1, &[0, 1], false), None);
        schedule.done(1, 1);
        assert_eq!(schedule.hand_out(1, &[0, 1], true), Some((0, &'a')));
    }

    #[test]
    fn a_worker_with_nothing_in_hand_costs_no_unit_a_try() {
        let mut schedule = schedule(&['a']);
        assert_eq!(schedule.lost(0), []);
        assert_eq!(hand_out(&mut schedule, 0), Some('a'));
    }
}
