//! Records samples at an interval, in a thread that must not disturb the recorded command.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_kit::plural;

use crate::Sampler;
use plmkit_logs::gpu_csv::GpuCsvWriter;

/// There is no last sample if the previous one is more recent than this part of the interval.
const LAST_SAMPLE_PART: u32 = 10;

/// Limits how long a hanging driver or file system delays the exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Records samples until it is told to finish. Warns once of a log that cannot be written; tells lost rows and missed intervals
/// at the end.
pub struct Recorder {
    stop: Sender<()>,
    ended: Receiver<Sampler>,
}

impl Recorder {
    /// Starts in a new thread, which calls `open`: loading the driver's library may take seconds.
    pub fn start(
        mut log: GpuCsvWriter,
        interval: Duration,
        open: impl FnOnce() -> Sampler + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (sender, ended) = mpsc::channel();
        let work = move || {
            let mut sampler = open();
            let (mut lost, mut is_failing) = (0, false);
            let take = || {
                let mut rows = sampler.sample();
                for row in &mut rows {
                    row.interval_s = Some(interval.as_secs_f64());
                }
                let written = log.write(&rows);
                if let Err(error) = &written
                    && !is_failing
                {
                    let next = if log.is_open() {
                        "trying again with each sample"
                    } else {
                        "going on without a record"
                    };
                    tracing::warn!("{error}; {next}");
                }
                is_failing = written.is_err();
                lost += if is_failing { rows.len() } else { 0 };
                log.is_open()
            };
            record(interval, take, |pause| {
                stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
            });
            if lost > 0 {
                let rows = plural(lost as u64, "row");
                tracing::warn!("the log could not be written all the time: {rows} were lost");
            }
            // Fails if the thread was abandoned.
            let _ = sender.send(sampler);
        };
        let thread = thread::Builder::new().name("recorder".to_owned());
        thread.spawn(work)?;
        Ok(Self { stop, ended })
    }

    /// Takes a last sample and ends. Returns the driver's library for the next record. Problems are only logged: the exit code is that of
    /// the command. A thread that hangs is abandoned.
    pub fn finish(self) -> Option<Sampler> {
        // Fails if the thread has ended already.
        let _ = self.stop.send(());
        let ended = self.ended.recv_timeout(STOP_TIMEOUT);
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            tracing::warn!(
                "the driver or the log does not answer: ending without the last samples"
            );
        }
        ended.ok()
    }
}

/// Takes samples at multiples of `interval` until `take` or `pause` returns false.
fn record(interval: Duration, mut take: impl FnMut() -> bool, pause: impl Fn(Duration) -> bool) {
    let start = Instant::now();
    let intervals = |time: Duration| time.as_nanos() / interval.as_nanos().max(1);
    let (mut last, mut missed) = (0, 0);
    loop {
        let sampled = Instant::now();
        let now = intervals(sampled - start);
        missed += now.saturating_sub(last + 1);
        last = now;
        if !take() {
            break;
        }
        if !pause(until_next(start.elapsed(), interval)) {
            if sampled.elapsed() >= interval / LAST_SAMPLE_PART {
                take();
            }
            break;
        }
    }
    if missed > 0 {
        tracing::warn!("{missed} of {} intervals have no sample", last + 1);
    }
}

/// Returns the time from `elapsed` to the next multiple of `interval`. Missed multiples are skipped.
fn until_next(elapsed: Duration, interval: Duration) -> Duration {
    let interval_ns = interval.as_nanos().max(1);
    let into_ns = elapsed.as_nanos() % interval_ns;
    Duration::from_nanos(u64::try_from(interval_ns - into_ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use plmkit_logs::GpuSample;

    use super::*;

    #[test]
    fn deadlines_are_multiples_of_the_interval_however_long_a_sample_takes() {
        let until = |ms| until_next(Duration::from_millis(ms), Duration::from_secs(1)).as_millis();
        assert_eq!([0, 30, 2999, 3000].map(until), [1000, 970, 1, 1000]);
    }

    #[test]
    fn there_is_a_row_for_each_interval_and_none_right_after_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.csv");
        let mut log = GpuCsvWriter::append(&path).unwrap();
        let left = Cell::new(4);
        let pause = |pause| {
            assert!(pause <= Duration::from_hours(1));
            left.set(left.get() - 1);
            left.get() > 0
        };
        let take = || log.write(&[GpuSample::default()]).is_ok();
        record(Duration::from_hours(1), take, pause);
        let log = std::fs::read_to_string(&path).unwrap();
        assert_eq!(log.lines().count(), 1 + 4);
    }
}
