//! When runs were at work, and which samples were taken meanwhile.

use std::ops::RangeInclusive;

use plmkit_logs::event::Event;
use plmkit_logs::{GpuSample, Timestamp};

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
        extend(&mut self.time_ms, event.time().map(Timestamp::unix_ms));
    }
}

impl TimeSpan {
    /// Returns the seconds from the end of this span to the start of a later one: since boot if both have the same boot, else
    /// by the time of day.
    pub(super) fn gap_to(&self, later: &Self) -> Option<f64> {
        let same_boot = self.boot_id.is_some() && self.boot_id == later.boot_id;
        let boot_s = self.boot_s.as_ref().zip(later.boot_s.as_ref());
        let gap_s = if let Some((before, after)) = boot_s.filter(|_| same_boot) {
            after.start() - before.end()
        } else {
            let (before, after) = self.time_ms.as_ref().zip(later.time_ms.as_ref())?;
            (after.start() - before.end()) as f64 / 1000.0
        };
        Some(gap_s).filter(|&gap_s| gap_s >= 0.0)
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

/// The spans of all runs, each with the position of its run.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSpans(Vec<(usize, TimeSpan)>);

impl TimeSpans {
    pub(super) fn new<'a>(spans: impl Iterator<Item = (usize, &'a TimeSpan)>) -> Self {
        Self(spans.map(|(run, span)| (run, span.clone())).collect())
    }

    /// Whether the time of any run is known.
    pub(super) fn are_known(&self) -> bool {
        let known = |span: &TimeSpan| span.boot_s.is_some() || span.time_ms.is_some();
        self.0.iter().any(|(_, span)| known(span))
    }

    /// Returns the runs during which a sample was taken, each once. If a run has the boot id of the sample, the sample is
    /// joined by seconds since boot, so that a set clock does no harm. Other samples are joined by the time of day.
    pub(super) fn runs_at(&self, sample: &GpuSample) -> Vec<usize> {
        let has_boot = |boot_id: &str| {
            let mut timed = self.0.iter().filter(|(_, span)| span.boot_s.is_some());
            timed.any(|(_, span)| span.boot_id.as_deref() == Some(boot_id))
        };
        let boot_time = sample.boot_time().filter(|&(boot_id, _)| has_boot(boot_id));
        let time_ms = sample.timestamp.unix_ms();
        let contains_sample = |span: &TimeSpan| {
            if let Some((boot_id, now_s)) = boot_time {
                let boot_s = span.boot_s.as_ref();
                span.boot_id.as_deref() == Some(boot_id)
                    && boot_s.is_some_and(|boot_s| boot_s.contains(&now_s))
            } else {
                let span_ms = span.time_ms.as_ref();
                span_ms.is_some_and(|span_ms| span_ms.contains(&time_ms))
            }
        };
        let spans = self.0.iter().filter(|(_, span)| contains_sample(span));
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

    #[test]
    fn samples_are_joined_by_the_boot_clock_if_a_run_has_their_boot_and_else_by_the_time_of_day() {
        let spans = [
            (0, Some("a"), 10, 20),
            (1, Some("b"), 15, 30),
            (0, Some("a"), 20, 25),
            (2, None, 40, 40),
        ];
        let spans = spans.map(|(run, boot_id, first, last)| (run, span(boot_id, first, last)));
        let spans = TimeSpans::new(spans.iter().map(|(run, span)| (*run, span)));
        for (boot_time, time_ms, expected) in [
            (Some(("a", 9.9)), 18_000, &[][..]),
            (Some(("a", 10.0)), 18_000, &[0]),
            (Some(("a", 20.0)), 18_000, &[0]),
            (Some(("a", 25.1)), 18_000, &[]),
            (Some(("b", 20.0)), 40_000, &[1]),
            (Some(("other", 18.0)), 9_999, &[]),
            (Some(("other", 18.0)), 10_000, &[0]),
            (None, 15_000, &[0, 1]),
            (None, 25_001, &[1]),
            (None, 40_000, &[2]),
            (None, 40_001, &[]),
        ] {
            let time = chrono::DateTime::from_timestamp_millis(time_ms).unwrap();
            let sample = GpuSample {
                boot_id: boot_time.map(|(id, _)| id.to_owned()),
                boot_s: boot_time.map(|(_, second)| second),
                ..GpuSample::at(time.into())
            };
            let found = spans.runs_at(&sample);
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        assert!(spans.are_known() && !TimeSpans::default().are_known());
    }
}
