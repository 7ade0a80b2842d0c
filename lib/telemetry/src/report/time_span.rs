//! When runs were at work, and which samples were taken meanwhile.

use std::collections::HashSet;

use plmkit_logs::GpuSample;
use plmkit_logs::event::Event;

/// The time from the first event of a process to its last, by both clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSpan {
    boot_id: Option<String>,
    /// In seconds since boot.
    boot_s: Option<(f64, f64)>,
    /// By the time of day, in ms since 1970.
    time_ms: Option<(i64, i64)>,
}

impl TimeSpan {
    /// Extends the span to an event.
    pub(super) fn add(&mut self, event: &Event) {
        if let Event::Run(started) = event {
            self.boot_id.clone_from(&started.boot_id);
        }
        if let Some(now) = event.boot_s() {
            let (first, last) = self.boot_s.unwrap_or((now, now));
            self.boot_s = Some((first.min(now), last.max(now)));
        }
        if let Some(time) = event.time() {
            let now = time.unix_ms();
            let (first, last) = self.time_ms.unwrap_or((now, now));
            self.time_ms = Some((first.min(now), last.max(now)));
        }
    }
}

/// The spans of all runs. Both ends belong to a span.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSpans {
    /// Each span, with the position of its run.
    spans: Vec<(usize, TimeSpan)>,
    boot_ids: HashSet<String>,
}

impl TimeSpans {
    pub(super) fn new<'a>(spans: impl Iterator<Item = (usize, &'a TimeSpan)>) -> Self {
        let spans: Vec<_> = spans.map(|(run, span)| (run, span.clone())).collect();
        let timed = spans.iter().filter(|(_, span)| span.boot_s.is_some());
        let boot_ids = timed.filter_map(|(_, span)| span.boot_id.clone());
        Self {
            boot_ids: boot_ids.collect(),
            spans,
        }
    }

    /// Whether any run says when it was.
    pub(super) fn are_known(&self) -> bool {
        let known = |span: &TimeSpan| span.boot_s.is_some() || span.time_ms.is_some();
        self.spans.iter().any(|(_, span)| known(span))
    }

    /// The runs that were at work when a sample was taken, each once. A sample of a boot in which a run was at work is joined
    /// by seconds since boot, whatever was done to the clock on the wall; any other by the time of day.
    pub(super) fn runs_at(&self, sample: &GpuSample) -> Vec<usize> {
        let boot_time = sample.boot_time();
        let boot_time = boot_time.filter(|&(boot_id, _)| self.boot_ids.contains(boot_id));
        let time_ms = sample.timestamp.unix_ms();
        let holds = |span: &TimeSpan| match boot_time {
            Some((boot_id, now)) => {
                let within = |(first, last): (f64, f64)| first <= now && now <= last;
                span.boot_s.is_some_and(within) && span.boot_id.as_deref() == Some(boot_id)
            }
            None => span
                .time_ms
                .is_some_and(|(first, last)| (first..=last).contains(&time_ms)),
        };
        let mut runs: Vec<usize> = Vec::new();
        for (run, span) in &self.spans {
            if runs.last() != Some(run) && holds(span) {
                runs.push(*run);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::{BatchDone, RunStarted};

    use super::*;

    fn span(boot_id: Option<&str>, first: u32, last: u32) -> TimeSpan {
        let time = |second: u32| format!("1970-01-01T00:00:{second}Z").parse().ok();
        let mut span = TimeSpan::default();
        span.add(&Event::Run(RunStarted {
            boot_id: boot_id.map(str::to_owned),
            boot_s: boot_id.map(|_| f64::from(first)),
            time: time(first),
            ..RunStarted::default()
        }));
        span.add(&Event::Batch(BatchDone {
            boot_s: boot_id.map(|_| f64::from(last)),
            time: time(last),
            ..BatchDone::default()
        }));
        span
    }

    fn sample(boot_time: Option<(&str, f64)>, time_ms: i64) -> GpuSample {
        GpuSample {
            boot_id: boot_time.map(|(id, _)| id.to_owned()),
            boot_s: boot_time.map(|(_, second)| second),
            ..GpuSample::at(
                chrono::DateTime::from_timestamp_millis(time_ms)
                    .unwrap()
                    .into(),
            )
        }
    }

    #[test]
    fn a_sample_without_a_boot_of_a_run_is_joined_by_the_time_of_day() {
        let spans = [
            span(None, 10, 20),
            span(Some("b"), 15, 30),
            span(None, 40, 40),
        ];
        let spans = TimeSpans::new(spans.iter().enumerate());
        for (time_ms, expected) in [
            (9_999, &[][..]),
            (10_000, &[0]),
            (15_000, &[0, 1]),
            (20_000, &[0, 1]),
            (20_001, &[1]),
            (40_000, &[2]),
            (40_001, &[]),
        ] {
            for boot_time in [None, Some(("other", 1.0))] {
                assert_eq!(
                    spans.runs_at(&sample(boot_time, time_ms)),
                    expected,
                    "{time_ms}"
                );
            }
        }
        assert!(spans.are_known() && !TimeSpans::default().are_known());
    }

    #[test]
    fn a_sample_of_the_boot_of_a_run_is_joined_by_seconds_since_boot_alone() {
        let spans = [
            span(Some("a"), 10, 20),
            span(Some("b"), 15, 30),
            span(Some("a"), 20, 25),
        ];
        let runs = [0, 1, 0];
        let spans = TimeSpans::new(runs.into_iter().zip(&spans));
        for (boot_id, second, expected) in [
            ("a", 9.9, &[][..]),
            ("a", 10.0, &[0]),
            ("a", 20.0, &[0]),
            ("a", 25.1, &[]),
            ("b", 20.0, &[1]),
        ] {
            let found = spans.runs_at(&sample(Some((boot_id, second)), 18_000));
            assert_eq!(found, expected, "{boot_id} {second}");
        }
    }
}
