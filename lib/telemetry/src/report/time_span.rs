//! When runs were at work, and which samples were taken meanwhile.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use plmkit_logs::GpuSample;
use plmkit_logs::event::Event;

/// The time from the first to the last event of a process, by both clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSpan {
    boot_id: Option<String>,
    /// In seconds since boot.
    boot_s: Option<RangeInclusive<f64>>,
    /// By the time of day, in ms since 1970.
    time_ms: Option<RangeInclusive<i64>>,
}

impl TimeSpan {
    /// Extends the span to an event.
    pub(super) fn add(&mut self, event: &Event) {
        if let Event::Run(started) = event {
            self.boot_id.clone_from(&started.boot_id);
        }
        extend(&mut self.boot_s, event.boot_s());
        extend(&mut self.time_ms, event.time().map(|time| time.unix_ms()));
    }
}

fn extend<T: Copy + PartialOrd>(span: &mut Option<RangeInclusive<T>>, time: Option<T>) {
    let Some(time) = time else { return };
    *span = Some(match span {
        None => time..=time,
        Some(span) if time < *span.start() => time..=*span.end(),
        Some(span) if time > *span.end() => *span.start()..=time,
        Some(_) => return,
    });
}

/// The spans of all runs.
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

    /// Whether the time of any run is known.
    pub(super) fn are_known(&self) -> bool {
        let known = |span: &TimeSpan| span.boot_s.is_some() || span.time_ms.is_some();
        self.spans.iter().any(|(_, span)| known(span))
    }

    /// Returns the runs during which a sample was taken, each once. If a run has the boot id of the sample, the sample is
    /// joined by seconds since boot, so that a set clock does no harm. Other samples are joined by the time of day.
    pub(super) fn runs_at(&self, sample: &GpuSample) -> Vec<usize> {
        let boot_time = sample.boot_time();
        let boot_time = boot_time.filter(|&(boot_id, _)| self.boot_ids.contains(boot_id));
        let time_ms = sample.timestamp.unix_ms();
        let contains_sample = |span: &TimeSpan| match boot_time {
            Some((boot_id, now_s)) => {
                let span_s = span.boot_s.as_ref();
                span_s.is_some_and(|span_s| span_s.contains(&now_s))
                    && span.boot_id.as_deref() == Some(boot_id)
            }
            None => {
                let span_ms = span.time_ms.as_ref();
                span_ms.is_some_and(|span_ms| span_ms.contains(&time_ms))
            }
        };
        let spans = self.spans.iter().filter(|(_, span)| contains_sample(span));
        let mut runs: Vec<usize> = spans.map(|&(run, _)| run).collect();
        runs.dedup();
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
        let time = chrono::DateTime::from_timestamp_millis(time_ms).unwrap();
        GpuSample {
            boot_id: boot_time.map(|(id, _)| id.to_owned()),
            boot_s: boot_time.map(|(_, second)| second),
            ..GpuSample::at(time.into())
        }
    }

    #[test]
    fn a_sample_without_a_boot_of_a_run_is_joined_by_the_time_of_day() {
        let spans = [(None, 10, 20), (Some("b"), 15, 30), (None, 40, 40)];
        let spans = spans.map(|(boot_id, first, last)| span(boot_id, first, last));
        let spans = TimeSpans::new(spans.iter().enumerate());
        for (time_ms, expected) in [
            (9_999, &[][..]),
            (10_000, &[0]),
            (15_000, &[0, 1]),
            (20_001, &[1]),
            (40_000, &[2]),
            (40_001, &[]),
        ] {
            for boot_time in [None, Some(("other", 1.0))] {
                let runs = spans.runs_at(&sample(boot_time, time_ms));
                assert_eq!(runs, expected, "{time_ms}");
            }
        }
        assert!(spans.are_known() && !TimeSpans::default().are_known());
    }

    #[test]
    fn a_sample_of_the_boot_of_a_run_is_joined_by_seconds_since_boot_alone() {
        let spans = [
            (Some("a"), 10, 20),
            (Some("b"), 15, 30),
            (Some("a"), 20, 25),
        ];
        let spans = spans.map(|(boot_id, first, last)| span(boot_id, first, last));
        let spans = TimeSpans::new([0, 1, 0].into_iter().zip(&spans));
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
