//! What `top` shows and `export` tells: GPUs, host and runs, looked at again and again.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use plmkit_logs::{GpuSample, Timestamp};
use plmkit_telemetry::live::{Follower, LiveRuns, RunStatus};
use plmkit_telemetry::{DRIVER_RETRY, Sampler, Sources};

use crate::args::DriverArgs;

/// CPU utilisation is the one between two readings: the first snapshot waits for a second reading.
const FIRST_READING: Duration = Duration::from_millis(250);

pub(crate) struct Monitor {
    sampler: Sampler,
    follower: Follower,
    runs: LiveRuns,
    forget: Option<Duration>,
}

/// What is seen at one moment.
pub(crate) struct Snapshot {
    /// A row for each GPU, or one for the host where there is no GPU.
    pub(crate) rows: Vec<GpuSample>,
    /// Those at work first.
    pub(crate) runs: Vec<RunStatus>,
    /// What people should know, each once.
    pub(crate) notes: Vec<String>,
}

impl Monitor {
    /// Loads the driver's library and takes a first reading, which may take seconds. Logs in folders that are older
    /// than `keep` are left out.
    pub(crate) fn open(driver: &DriverArgs, events: &[PathBuf], keep: Duration) -> Self {
        let mut sampler = Sampler::open(&Sources {
            nvml: driver.nvml.clone(),
            driver_retry: DRIVER_RETRY,
            disk: Some(PathBuf::from(".")),
            command: None,
        });
        sampler.sample();
        thread::sleep(FIRST_READING);
        Self {
            sampler,
            follower: Follower::new(events.to_vec(), keep),
            runs: LiveRuns::default(),
            forget: None,
        }
    }

    /// Leaves out runs of which nothing was heard for longer than `keep`, wherever their logs lie.
    pub(crate) fn forgetting(self, keep: Duration) -> Self {
        Self {
            forget: Some(keep),
            ..self
        }
    }

    /// Looks at everything once. A log that is long and new is not read to its end, unless `to_the_end`: its runs are not complete.
    pub(crate) fn take_snapshot(&mut self, to_the_end: bool) -> Snapshot {
        let mut notes = Vec::new();
        loop {
            let update = self.follower.read_new(&mut self.runs);
            notes.extend(update.notes);
            if !(update.behind && to_the_end) {
                break;
            }
        }
        let now = Timestamp::now();
        if let Some(keep) = self.forget {
            self.runs.forget(now, keep);
        }
        Snapshot {
            rows: self.sampler.sample(),
            runs: self
                .runs
                .status_of_recent(now, self.forget.unwrap_or(Duration::MAX)),
            notes,
        }
    }
}
