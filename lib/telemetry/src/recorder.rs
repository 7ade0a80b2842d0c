//! Sampling at an interval, beside a run that must not notice.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::gpu_csv::GpuCsvWriter;
use crate::pressure::Pressure;
use crate::{GpuSample, Sampler, Sources};

/// A last sample closer than this share of the interval to the one before would say nothing.
const LAST_SAMPLE_SHARE: u32 = 10;

/// What to record, and how often.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Time between samples.
    pub interval: Duration,
    /// What to sample.
    pub sources: Sources,
    /// The share of a GPU's memory, in percent, above which there is a warning.
    pub memory_warning: f64,
}

/// Samples into a log until it is told to finish. A log that cannot be written is warned of once.
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts at once, in a thread of its own, where the driver's library is loaded too: that may take seconds.
    pub fn start(log: GpuCsvWriter, recording: Recording) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                let mut sampler = Sampler::open(&recording.sources);
                let mut pressure = Pressure::new(recording.memory_warning);
                // The channel is the clock: nothing wakes the thread between two samples but the end.
                record(
                    log,
                    recording.interval,
                    || {
                        let rows = sampler.sample();
                        for warning in pressure.warnings(&rows) {
                            tracing::warn!("{warning}");
                        }
                        rows
                    },
                    |pause| stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout),
                );
            })?;
        Ok(Self { stop, thread })
    }

    /// Takes a last sample and ends.
    pub fn finish(self) {
        // A recorder whose log failed has ended already.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::warn!("the recorder failed: the log is cut short");
        }
    }
}

/// Writes samples at multiples of `interval` until `pause` says that the end has come.
fn record(
    mut log: GpuCsvWriter,
    interval: Duration,
    mut sample: impl FnMut() -> Vec<GpuSample>,
    pause: impl Fn(Duration) -> bool,
) {
    let mut write = |rows: &[GpuSample]| {
        log.write(rows)
            .inspect_err(|error| tracing::warn!("{error}; going on without a record"))
            .is_ok()
    };
    let start = Instant::now();
    loop {
        let sampled = Instant::now();
        if !write(&sample()) {
            return;
        }
        if !pause(until_next(start.elapsed(), interval)) {
            if sampled.elapsed() >= interval / LAST_SAMPLE_SHARE {
                write(&sample());
            }
            return;
        }
    }
}

/// From `elapsed` to the next multiple of `interval`. Multiples that were missed are left out, not made up for.
fn until_next(elapsed: Duration, interval: Duration) -> Duration {
    let interval_ns = interval.as_nanos().max(1);
    let into_ns = elapsed.as_nanos() % interval_ns;
    Duration::from_nanos(u64::try_from(interval_ns - into_ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::Timestamp;

    #[test]
    fn deadlines_are_multiples_of_the_interval_however_long_a_sample_takes() {
        let until = |ms| until_next(Duration::from_millis(ms), Duration::from_secs(1));
        assert_eq!(until(0), Duration::from_secs(1));
        assert_eq!(until(30), Duration::from_millis(970));
        assert_eq!(until(2999), Duration::from_millis(1));
        assert_eq!(until(3000), Duration::from_secs(1));
    }

    fn rows() -> Vec<GpuSample> {
        vec![GpuSample::at(Timestamp::now())]
    }

    #[test]
    fn there_is_a_row_for_each_interval_and_none_right_after_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.csv");
        let left = Cell::new(4);
        record(
            GpuCsvWriter::append(&path).unwrap(),
            Duration::from_hours(1),
            rows,
            |pause| {
                assert!(pause <= Duration::from_hours(1));
                left.set(left.get() - 1);
                left.get() > 0
            },
        );
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1 + 4);
    }

    #[test]
    fn a_log_that_cannot_be_written_ends_the_recording_quietly() {
        let log = GpuCsvWriter::append(Path::new("/dev/full")).unwrap();
        let taken = Cell::new(0);
        record(
            log,
            Duration::from_secs(1),
            || {
                taken.set(taken.get() + 1);
                rows()
            },
            |_| true,
        );
        assert_eq!(taken.get(), 1);
    }
}
