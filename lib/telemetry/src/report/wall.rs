//! Runs beside each other, by the time of day.

use super::attempt::Work;
use super::bins::Bins;
use super::moments::{micros, seconds};
use super::run::RunSummary;

/// Returns the seconds in which at least one run was at work, with pauses of up to `pause_s`, and the tokens a second of all runs
/// together over these seconds. `None` if it is unknown when one of them was at work.
pub(super) fn at_work(runs: &[RunSummary], pause_s: f64) -> Option<(f64, Bins)> {
    let work: Option<Vec<Vec<Work>>> = runs.iter().map(|run| run.work.clone()).collect();
    let mut work = work?.concat();
    work.sort_by_key(|(time, _)| time.start);
    // The last end so far, and its place among these seconds.
    let (mut end_us, mut place_us, mut rate) = (i64::MIN, 0, Bins::default());
    for (time, rate_of_one) in work {
        if time.start.saturating_sub(end_us) > micros(pause_s) {
            end_us = time.start;
        }
        let from_us = place_us + time.start - end_us;
        for (from_s, to_s, tokens_per_s) in rate_of_one.means() {
            rate.add(
                seconds(from_us) + from_s,
                seconds(from_us) + to_s,
                tokens_per_s,
            );
        }
        place_us = place_us.max(from_us + time.end - time.start);
        end_us = end_us.max(time.end);
    }
    Some((seconds(place_us), rate))
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::Event;

    use super::*;
    use crate::tests::{batch, done, started, summaries};

    /// A run of one batch: its second of the day, and how long it was.
    fn run(name: &str, second: u32, elapsed_s: f64) -> [Event; 3] {
        let run = || name.to_owned();
        let started = started(|started| {
            started.run = run();
            started.time = format!("2026-01-31T12:{:02}:{:02}Z", second / 60, second % 60)
                .parse()
                .ok();
        });
        let batch = batch(0, |batch| {
            (batch.run, batch.elapsed_s, batch.tokens) = (run(), Some(elapsed_s), 1000);
        });
        [
            started,
            batch,
            done(|done| (done.run, done.elapsed_s) = (run(), elapsed_s)),
        ]
    }

    #[test]
    fn each_second_counts_once_whatever_ran_in_it() {
        let cases = [
            // One after the other, beside each other, one within the other, with a pause.
            ([(0, 10.0), (10, 10.0)], 20.0),
            ([(0, 10.0), (5, 10.0)], 15.0),
            ([(0, 10.0), (2, 2.0)], 10.0),
            ([(0, 10.0), (70, 10.0)], 20.0),
        ];
        for (runs, expected_s) in cases {
            let [one, other] = runs;
            let events = [run("a", one.0, one.1), run("b", other.0, other.1)];
            let runs = summaries(events.concat());
            let wall_s = at_work(&runs, 0.0).map(|(wall_s, _)| wall_s);
            assert_eq!(wall_s, Some(expected_s));
            let sum = super::super::groups::sum(&runs);
            assert_eq!(sum.throughput.tokens_per_s, Some(2000.0 / expected_s));
        }
        let mut unknown = run("b", 0, 10.0);
        let Event::Run(started) = &mut unknown[0] else {
            panic!("a start")
        };
        started.time = None;
        assert_eq!(
            at_work(&summaries([run("a", 0, 10.0), unknown].concat()), 0.0),
            None
        );
    }

    #[test]
    fn rates_of_one_time_add_up_and_only_long_pauses_are_cut() {
        let events = [
            run("a", 0, 10.0),
            run("b", 5, 5.0),
            run("c", 20, 10.0),
            run("d", 1000, 10.0),
        ];
        let (length_s, rate) = at_work(&summaries(events.concat()), 600.0).unwrap();
        assert_eq!(Some(length_s), Some(40.0));
        let rate = rate.means();
        let at = |second: f64| {
            rate.iter()
                .find(|bar| (bar.0..bar.1).contains(&second))
                .map_or(0.0, |bar| bar.2)
        };
        assert_eq!(
            [1.0, 6.0, 12.0, 21.0, 31.0].map(at).to_vec(),
            [100.0, 300.0, 0.0, 100.0, 100.0]
        );
        let tokens: f64 = rate.iter().map(|(from, to, rate)| (to - from) * rate).sum();
        assert!((tokens - 4000.0).abs() < 1e-6, "{tokens}");
    }
}
