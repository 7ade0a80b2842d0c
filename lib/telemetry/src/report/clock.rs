//! Clocks on the wall that jump, beside a clock that does not.
//!
//! Runs and recordings say of each moment the time of day and the seconds since they began. The difference of the two is
//! when they began, and stays the same until the clock on the wall is set. So each is cut into stretches over which it
//! went on evenly.

use crate::Timestamp;

/// Times of day and elapsed times are taken one after the other; a clock that is set by less shifts a window by no more.
const TOLERANCE_MS: i64 = 2_000;

/// The most stretches: a clock that is set more often tells nothing about when something was.
const MOST: usize = 64;

/// When something was at work, by the clock on the wall.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Clock {
    stretches: Vec<Stretch>,
}

/// Times between which the clock on the wall was not set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    /// When it would have begun by this clock, in ms since 1970; `None` where elapsed times are not known.
    pub(super) began_ms: Option<i64>,
    /// The earliest and the latest time of day, in ms since 1970.
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    /// The least and the most elapsed time, in ms.
    elapsed: Option<(i64, i64)>,
}

impl Clock {
    /// Adds a moment; where it lies among the [`stretches`](Self::stretches).
    pub(super) fn add(&mut self, time: Timestamp, elapsed_s: Option<f64>) -> usize {
        let time_ms = time.unix_ms();
        let into_ms = elapsed_s.map(|elapsed_s| (elapsed_s * 1000.0) as i64);
        let began_ms = into_ms.map(|into_ms| time_ms.saturating_sub(into_ms));
        let place = self.place(began_ms).unwrap_or_else(|| {
            self.stretches.push(Stretch {
                began_ms,
                first_ms: time_ms,
                last_ms: time_ms,
                elapsed: None,
            });
            self.stretches.len() - 1
        });
        let stretch = &mut self.stretches[place];
        // The last one holds: clocks drift.
        stretch.began_ms = began_ms.or(stretch.began_ms);
        stretch.first_ms = stretch.first_ms.min(time_ms);
        stretch.last_ms = stretch.last_ms.max(time_ms);
        if let Some(now) = into_ms {
            let (least, most) = stretch.elapsed.unwrap_or((now, now));
            stretch.elapsed = Some((least.min(now), most.max(now)));
        }
        place
    }

    /// Whether a moment goes on with a stretch that is known.
    pub(super) fn knows(&self, time: Timestamp, elapsed_s: f64) -> bool {
        let began_ms = time.unix_ms().saturating_sub((elapsed_s * 1000.0) as i64);
        let known = |stretch: &Stretch| {
            stretch
                .began_ms
                .is_some_and(|known_ms| near(known_ms, began_ms))
        };
        self.stretches.iter().any(known)
    }

    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// The stretches, each as long as it may have been: the clock was set some time between the last moment of one and the
    /// first of the next.
    pub(super) fn longest(&self) -> impl Iterator<Item = Stretch> {
        let known = || self.stretches.iter().filter_map(|stretch| stretch.elapsed);
        self.stretches.iter().map(move |&stretch| {
            let Some((began_ms, (least, most))) = stretch.began_ms.zip(stretch.elapsed) else {
                return stretch;
            };
            let from = known()
                .map(|(_, most)| most)
                .filter(|&before| before < least)
                .max();
            let to = known()
                .map(|(least, _)| least)
                .filter(|&after| after > most)
                .min();
            let wall = |into_ms| began_ms.saturating_add(into_ms);
            Stretch {
                first_ms: from.map_or(stretch.first_ms, |from| wall(from).min(stretch.first_ms)),
                last_ms: to.map_or(stretch.last_ms, |to| wall(to).max(stretch.last_ms)),
                ..stretch
            }
        })
    }

    /// The stretch that a moment belongs to. Without elapsed time nothing speaks for a jump.
    fn place(&self, began_ms: Option<i64>) -> Option<usize> {
        let last = self.stretches.len().checked_sub(1)?;
        let Some(began_ms) = began_ms else {
            return Some(last);
        };
        let belongs = |stretch: &Stretch| {
            stretch
                .began_ms
                .is_none_or(|known_ms| near(known_ms, began_ms))
        };
        let known = self.stretches.iter().rposition(belongs);
        known.or((self.stretches.len() == MOST).then_some(last))
    }
}

/// Whether two times are one, as nearly as they are known.
pub(super) fn near(one_ms: i64, other_ms: i64) -> bool {
    one_ms.abs_diff(other_ms) <= TOLERANCE_MS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(moments: &[(&str, Option<f64>)]) -> Vec<(i64, i64)> {
        let time = |text: &str| format!("2026-01-31T{text}Z").parse::<Timestamp>().unwrap();
        let midnight_ms = time("00:00:00").unix_ms();
        let mut clock = Clock::default();
        for &(text, elapsed_s) in moments {
            clock.add(time(text), elapsed_s);
        }
        let stretches = clock.stretches().iter();
        let seconds = |ms: i64| (ms - midnight_ms) / 1000;
        stretches
            .map(|stretch| (seconds(stretch.first_ms), seconds(stretch.last_ms)))
            .collect()
    }

    #[test]
    fn a_clock_that_is_set_begins_another_stretch() {
        let forwards = [
            ("00:00:10", Some(0.0)),
            ("00:00:20", Some(10.1)),
            ("01:00:30", Some(20.0)),
            ("01:00:40", Some(30.0)),
        ];
        assert_eq!(clock(&forwards), [(10, 20), (3630, 3640)]);
        let backwards = [("01:00:00", Some(0.0)), ("00:00:10", Some(10.0))];
        assert_eq!(clock(&backwards), [(3600, 3600), (10, 10)]);
        let there_and_back = [
            ("00:00:10", Some(0.0)),
            ("01:00:20", Some(10.0)),
            ("00:00:30", Some(20.0)),
        ];
        assert_eq!(clock(&there_and_back), [(10, 30), (3620, 3620)]);
    }

    #[test]
    fn a_stretch_may_have_lasted_to_the_moment_that_another_clock_is_seen() {
        let mut clock = Clock::default();
        for (time, elapsed_s) in [("10", 0.0), ("20", 10.0), ("50", 20.0), ("55", 25.0)] {
            let time = format!("1970-01-01T00:00:{time}Z").parse().unwrap();
            clock.add(time, Some(elapsed_s));
        }
        let windows = clock
            .longest()
            .map(|stretch| (stretch.first_ms, stretch.last_ms));
        assert_eq!(
            windows.collect::<Vec<_>>(),
            [(10_000, 30_000), (40_000, 55_000)]
        );
    }

    #[test]
    fn a_clock_that_drifts_does_not() {
        let moments = (0..1000).map(|i| (f64::from(i) * 10.0, i64::from(i) * 10_010));
        let mut clock = Clock::default();
        let start: Timestamp = "2026-01-31T00:00:00Z".parse().unwrap();
        for (elapsed_s, after_ms) in moments {
            let time = chrono::DateTime::from_timestamp_millis(start.unix_ms() + after_ms).unwrap();
            clock.add(time.into(), Some(elapsed_s));
        }
        assert_eq!(clock.stretches().len(), 1);
    }

    #[test]
    fn without_elapsed_times_there_is_one_stretch() {
        let moments = [("00:00:10", None), ("05:00:00", None), ("00:00:05", None)];
        assert_eq!(clock(&moments), [(5, 18000)]);
        assert_eq!(
            clock(&[("00:00:10", None), ("00:00:15", Some(5.0))]),
            [(10, 15)]
        );
    }

    #[test]
    fn a_clock_that_is_always_set_takes_no_more_memory() {
        let mut clock = Clock::default();
        let time: Timestamp = "2026-01-31T00:00:00Z".parse().unwrap();
        (0..1000).for_each(|i| {
            clock.add(time, Some(f64::from(i) * 100.0));
        });
        assert_eq!(clock.stretches().len(), MOST);
    }
}
