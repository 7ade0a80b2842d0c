//! Records samples at an interval, in a thread that must not disturb the recorded command.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use plmkit_contract::{path_text, plural};
use plmkit_store::StoreError;

use crate::background::{Background, StopSignal};
use crate::warnings::Warnings;
use crate::{Sampler, Sources};
use plmkit_logs::gpu_csv::GpuCsvWriter;
use plmkit_logs::{GpuSample, LogError};

/// There is no last sample if the previous one is more recent than this part of the interval.
const LAST_SAMPLE_PART: u32 = 10;

/// Time between two attempts to open a log that another process writes.
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

/// Records samples until it is told to finish. Warns once of a log that cannot be written, and of missed intervals; tells
/// both numbers at the end.
pub struct Recorder {
    thread: Background<()>,
    /// Whether the thread is writing, to tell a hanging log from a hanging driver.
    writing: Arc<AtomicBool>,
}

impl Recorder {
    /// Starts in a new thread: at once if `log` is the open log at `path`, else as soon as no other process writes it. The
    /// thread loads the driver's library, which may take seconds.
    pub fn start(
        log: Option<GpuCsvWriter>,
        path: &Path,
        options: RecorderOptions,
    ) -> io::Result<Self> {
        let path = path.to_owned();
        let writing = Arc::new(AtomicBool::new(false));
        let is_writing = Arc::clone(&writing);
        let thread = Background::start("recorder", move |stop| {
            let Some(mut log) = log.or_else(|| open_when_free(&path, stop)) else {
                return;
            };
            let mut sampler = Sampler::open(&options.sources);
            let mut warnings = Warnings::new(options.memory_warning);
            let sample = || {
                let mut rows = sampler.sample();
                let interval_s = Some(options.interval.as_secs_f64());
                for row in &mut rows {
                    row.interval_s = interval_s;
                }
                for warning in warnings.warnings(&rows) {
                    tracing::warn!("{warning}");
                }
                rows
            };
            let mut losses = Losses::default();
            let write = |rows: &[GpuSample]| {
                is_writing.store(true, Ordering::Relaxed);
                let written = log.write(rows);
                is_writing.store(false, Ordering::Relaxed);
                losses.add(rows.len(), &written, log.is_open());
                log.is_open()
            };
            record(options.interval, sample, write, |pause| stop.pause(pause));
            losses.finish();
        })?;
        Ok(Self { thread, writing })
    }

    /// Takes a last sample and ends. Problems are only logged: the exit code is that of the command.
    pub fn finish(self) {
        let reason = match self.thread.stop() {
            Ok(()) => return,
            Err(RecvTimeoutError::Disconnected) => "the recorder failed: the log is cut short",
            Err(RecvTimeoutError::Timeout) if self.writing.load(Ordering::Relaxed) => {
                "the log takes no more rows: ending without the last samples"
            }
            Err(RecvTimeoutError::Timeout) => {
                "the driver does not answer: ending without the last samples"
            }
        };
        tracing::warn!("{reason}");
    }
}

/// Opens the log at `path` once no other process writes it. Returns `None` if the recorder is stopped before, or the log
/// cannot be opened.
fn open_when_free(path: &Path, stop: &StopSignal) -> Option<GpuCsvWriter> {
    loop {
        match GpuCsvWriter::append(path) {
            Ok(log) => {
                tracing::info!("{}: recording from now on", path_text(path));
                return Some(log);
            }
            Err(LogError::Store(StoreError::Busy { .. })) if stop.pause(LOG_RETRY) => {}
            Err(LogError::Store(StoreError::Busy { .. })) => return None,
            Err(error) => {
                tracing::warn!("{error}; going on without a record");
                return None;
            }
        }
    }
}

/// Rows that could not be written.
#[derive(Default)]
struct Losses {
    /// Rows of this failure, and of all.
    rows: [usize; 2],
}

impl Losses {
    fn add(&mut self, rows: usize, written: &Result<(), LogError>, is_open: bool) {
        match written {
            Ok(()) if self.rows[0] > 0 => {
                tracing::warn!("the log is written again; {} were lost", self.lost(0));
                self.rows[0] = 0;
            }
            Ok(()) => {}
            Err(error) if !is_open => tracing::warn!("{error}; going on without a record"),
            Err(error) => {
                if self.rows[0] == 0 {
                    tracing::warn!("{error}; trying again with each sample");
                }
                self.rows.iter_mut().for_each(|sum| *sum += rows);
            }
        }
    }

    fn lost(&self, sum: usize) -> String {
        plural(self.rows[sum] as u64, "row")
    }

    fn finish(self) {
        if self.rows[1] > 0 {
            tracing::warn!(
                "the log could not be written all the time: {} were lost",
                self.lost(1)
            );
        }
    }
}

/// Takes samples at multiples of `interval` until `pause` or `write` returns false.
fn record(
    interval: Duration,
    mut sample: impl FnMut() -> Vec<GpuSample>,
    mut write: impl FnMut(&[GpuSample]) -> bool,
    pause: impl Fn(Duration) -> bool,
) {
    let start = Instant::now();
    let intervals = |time: Duration| time.as_nanos() / interval.as_nanos().max(1);
    let (mut last, mut missed) = (0, 0);
    loop {
        let sampled = Instant::now();
        let now = intervals(sampled - start);
        let skipped = now.saturating_sub(last + 1);
        if skipped > 0 && missed == 0 {
            tracing::warn!(
                "a sample came late, after {} intervals; later ones are only counted",
                skipped + 1
            );
        }
        missed += skipped;
        last = now;
        if !write(&sample()) {
            break;
        }
        if !pause(until_next(start.elapsed(), interval)) {
            if sampled.elapsed() >= interval / LAST_SAMPLE_PART {
                write(&sample());
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
        let sample = || vec![GpuSample::default()];
        let write = |rows: &[GpuSample]| log.write(rows).is_ok();
        record(Duration::from_hours(1), sample, write, pause);
        let log = std::fs::read_to_string(&path).unwrap();
        assert_eq!(log.lines().count(), 1 + 4);
    }
}
