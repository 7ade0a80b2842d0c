//! When runs were at work on a GPU.

use std::collections::HashMap;
use std::ops::Range;

/// A time in which a run, by its position, was at work on a GPU, in microseconds since the boot of the machine.
pub(super) type Span = (Range<i64>, usize);

/// The times in which runs were at work on one GPU during one boot.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// By their starts.
    spans: Vec<Span>,
    /// The first one that is not over.
    first: usize,
}

impl Work {
    pub(super) fn new(mut spans: Vec<Span>) -> Self {
        spans.sort_by_key(|(time, run)| (*run, time.start));
        // Attempts of one run.
        spans.dedup_by(|(time, run), (last, other)| {
            let is_one = run == other && time.start <= last.end;
            last.end = last.end.max(if is_one { time.end } else { last.end });
            is_one
        });
        spans.sort_by_key(|(time, run)| (time.start, *run));
        Self { spans, first: 0 }
    }

    /// Returns how long each run was at work in a time, and how long any of them was.
    pub(super) fn during(&self, time: &Range<i64>) -> (Vec<(usize, i64)>, i64) {
        let (mut runs, mut any_us, mut end) = (Vec::new(), 0, time.start);
        let spans = self.spans[self.first..].iter();
        for (span, run) in spans.take_while(|(span, _)| span.start < time.end) {
            let (start, stop) = (span.start.max(time.start), span.end.min(time.end));
            if start < stop {
                runs.push((*run, stop - start));
                any_us += (stop - start.max(end)).max(0);
                end = end.max(stop);
            }
        }
        (runs, any_us)
    }

    /// Forgets the times before a moment: later questions are of later times.
    pub(super) fn forget(&mut self, before: i64) {
        let over = self.spans[self.first..].iter();
        let over = over.take_while(|(span, _)| span.end <= before).count();
        self.first += over;
    }

    /// Adds how long each run was at work in all, and whether another one was meanwhile. Returns how long any of them was.
    pub(super) fn add_to(&self, runs: &mut HashMap<usize, (i64, bool)>) -> i64 {
        let (mut any_us, mut last) = (0, None::<&Span>);
        for span in &self.spans {
            let (time, run) = span;
            runs.entry(*run).or_default().0 += time.end - time.start;
            let end = last.map_or(time.start, |(last, _)| last.end);
            any_us += time.end - time.start.max(end.min(time.end));
            if let Some((_, other)) = last.filter(|(_, other)| time.start < end && other != run) {
                for run in [run, other] {
                    runs.entry(*run).or_default().1 = true;
                }
            }
            if last.is_none_or(|(last, _)| last.end < time.end) {
                last = Some(span);
            }
        }
        any_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once_for_the_gpu_and_for_each_run() {
        let mut work = Work::new(vec![(20..30, 2), (0..10, 0), (5..8, 1), (6..12, 1)]);
        let mut runs = HashMap::new();
        assert_eq!(work.add_to(&mut runs), 22);
        let expected = [(0, (10, true)), (1, (7, true)), (2, (10, false))];
        assert_eq!(runs, expected.into());
        assert_eq!(work.during(&(7..25)), (vec![(0, 3), (1, 5), (2, 5)], 10));
        work.forget(12);
        assert_eq!(work.during(&(12..25)), (vec![(2, 5)], 5));
    }
}
