//! Sampling at an interval, beside a run that must not notice.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plmkit_contract::path_text;
use plmkit_store::StoreError;

use crate::background::{Background, NoResult, StopSignal};
use crate::memory_warning::MemoryWarnings;
use crate::{Sampler, Sources};
use plmkit_logs::gpu_csv::GpuCsvWriter;
use plmkit_logs::{GpuSample, LogError};

/// A last sample closer than this share of the interval to the one before would say nothing.
const LAST_SAMPLE_SHARE: u32 = 10;

/// How often a log that another process is writing is tried.
const LOG_RETRY: Duration = Duration::from_millis(500);

/// What to record, and how often.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// Time between samples.
    pub interval: Duration,
    /// What to sample.
    pub sources: Sources,
    /// The share of a GPU's memory, in percent, above which there is a warning.
    pub memory_warning: f64,
}

/// Samples into a log until it is told to finish. A log that cannot be written is warned of once.
pub struct Recorder {
    thread: Background<Option<GpuCsvWriter>>,
    /// Whether the thread hands rows to the system, for a word on what it hangs in.
    writing: Arc<AtomicBool>,
}

/// How a recorder ended.
pub enum RecorderEnd {
    /// The log, which no other recorder writes to as long as it is open.
    Log(GpuCsvWriter),
    /// There is no record of this recorder: another process was writing the log all the time, or it could not be opened.
    Nothing,
    /// The driver or the log hangs, and so does the thread, which was left behind; or it failed.
    Hangs,
}

impl Recorder {
    /// Starts at once, in a thread of its own, where the driver's library is loaded too: that may take seconds.
    pub fn start(log: GpuCsvWriter, options: RecorderOptions) -> io::Result<Self> {
        Self::spawn(options, |_| Some(log))
    }

    /// Starts as soon as no other process writes the log at `path`.
    pub fn start_when_free(path: &Path, options: RecorderOptions) -> io::Result<Self> {
        let path = path.to_owned();
        Self::spawn(options, move |stop| open_when_free(&path, stop))
    }

    fn spawn(
        options: RecorderOptions,
        open: impl FnOnce(&StopSignal) -> Option<GpuCsvWriter> + Send + 'static,
    ) -> io::Result<Self> {
        let writing = Arc::new(AtomicBool::new(false));
        let is_writing = Arc::clone(&writing);
        let thread = Background::start("recorder", move |stop| {
            let mut log = open(stop)?;
            let mut sampler = Sampler::open(&options.sources);
            let mut warnings = MemoryWarnings::new(options.memory_warning);
            let sample = || {
                let rows = sampler.sample();
                for warning in warnings.warnings(&rows) {
                    tracing::warn!("{warning}");
                }
                rows
            };
            let write = |rows: &[GpuSample]| {
                is_writing.store(true, Ordering::Relaxed);
                let written = log.write(rows);
                is_writing.store(false, Ordering::Relaxed);
                written
            };
            record(options.interval, sample, write, |pause| stop.pause(pause));
            Some(log)
        })?;
        Ok(Self { thread, writing })
    }

    /// Takes a last sample and ends.
    pub fn finish(self) -> RecorderEnd {
        let reason = match self.thread.stop() {
            Ok(Some(log)) => return RecorderEnd::Log(log),
            Ok(None) => return RecorderEnd::Nothing,
            Err(NoResult::Failed) => "the recorder failed: the log is cut short",
            Err(NoResult::Hangs) if self.writing.load(Ordering::Relaxed) => {
                "the log takes no more rows: ending without the last samples"
            }
            Err(NoResult::Hangs) => "the driver does not answer: ending without the last samples",
        };
        tracing::warn!("{reason}");
        RecorderEnd::Hangs
    }
}

/// The log at `path` once nobody writes it; `None` where the end came before, or where it cannot be opened.
fn open_when_free(path: &Path, stop: &StopSignal) -> Option<GpuCsvWriter> {
    loop {
        match GpuCsvWriter::append(path) {
            Ok(log) => {
                tracing::info!("{}: recording from now on", path_text(path));
                return Some(log);
            }
            Err(LogError::Store(StoreError::Busy { .. })) => {
                if !stop.pause(LOG_RETRY) {
                    return None;
                }
            }
            Err(error) => {
                tracing::warn!("{error}; going on without a record");
                return None;
            }
        }
    }
}

/// Takes samples at multiples of `interval` until `pause` says that the end has come, or until they cannot be put away.
fn record(
    interval: Duration,
    mut sample: impl FnMut() -> Vec<GpuSample>,
    mut put: impl FnMut(&[GpuSample]) -> Result<(), LogError>,
    pause: impl Fn(Duration) -> bool,
) {
    let mut write = |rows: &[GpuSample]| {
        put(rows)
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

    use super::*;
    use plmkit_logs::Timestamp;

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
        let mut log = GpuCsvWriter::append(&path).unwrap();
        record(
            Duration::from_hours(1),
            rows,
            |rows| log.write(rows),
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
        let mut log = GpuCsvWriter::append(Path::new("/dev/full")).unwrap();
        let taken = Cell::new(0);
        record(
            Duration::from_secs(1),
            || {
                taken.set(taken.get() + 1);
                rows()
            },
            |rows| log.write(rows),
            |_| true,
        );
        assert_eq!(taken.get(), 1);
    }
}
