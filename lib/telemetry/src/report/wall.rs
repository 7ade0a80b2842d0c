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
    let mut rate = Bins::default();
    // The last end so far, and its place among these seconds.
    let (mut end_us, mut place_us) = (i64::MIN, 0);
    for (time, rate_of_one) in work {
        if time.start.saturating_sub(end_us) > micros(pause_s) {
            end_us = time.start;
        }
        let from_us = place_us + time.start - end_us;
        for (from_s, to_s, tokens_per_s) in rate_of_one.means() {
            let start_s = seconds(from_us);
            rate.add(start_s + from_s, start_s + to_s, tokens_per_s);
        }
        place_us = place_us.max(from_us + time.end - time.start);
        end_us = end_us.max(time.end);
    }
    Some((seconds(place_us), rate))
}
