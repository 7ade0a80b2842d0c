//! Snapshots of GPUs and runs, for `top` and `export`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plmkit_logs::event::RunStarted;
use plmkit_logs::{GpuSample, Timestamp, boot_id, host_name};
use plmkit_telemetry::live::{Follower, LiveRuns, ProcessStatus, RunStatus, processes};
use plmkit_telemetry::{DriverVersions, Sampler};
use serde::Serialize;

use super::args::SamplingArgs;

pub(crate) struct Monitor {
    sampler: Sampler,
    follower: Follower,
    runs: LiveRuns,
    /// The boot and the name of this machine.
    here: (Option<String>, Option<String>),
    /// Leaves out runs without news for this long, wherever their logs are.
    forget: Duration,
}

/// GPUs and runs at one moment.
#[derive(Default, Serialize)]
pub(crate) struct Snapshot {
    /// The time of day.
    pub(crate) time: Timestamp,
    /// The name of this machine.
    pub(crate) host: Option<String>,
    #[serde(flatten)]
    pub(crate) versions: DriverVersions,
    /// A row for each GPU and MIG instance.
    #[serde(rename = "samples")]
    pub(crate) rows: Vec<GpuSample>,
    /// The processes on GPUs.
    pub(crate) processes: Vec<ProcessStatus>,
    /// The runs, those at work first.
    pub(crate) runs: Vec<RunStatus>,
    /// Messages for people, each once.
    #[serde(skip)]
    pub(crate) notes: Vec<String>,
}

impl Monitor {
    /// Loads the driver's library, which may take seconds. Logs in folders are skipped if they are
    /// older than `keep`, and runs without news for longer than `forget` are left out.
    pub(crate) fn open(
        sampling: &SamplingArgs,
        events: &[PathBuf],
        keep: Duration,
        forget: Duration,
    ) -> Self {
        Self {
            sampler: Sampler::open(sampling.nvml.as_deref()),
            follower: Follower::new(events.to_vec(), keep),
            runs: LiveRuns::default(),
            here: (boot_id(), host_name()),
            forget,
        }
    }

    /// Takes a snapshot.
    pub(crate) fn take_snapshot(&mut self) -> Snapshot {
        let notes = self.follower.read_new(&mut self.runs);
        let now = Timestamp::now();
        let rows = self.sampler.sample();
        let here = &self.here;
        let runs = self
            .runs
            .status_of_recent(now, self.forget, |run| is_gone(run, here));
        Snapshot {
            time: now,
            host: self.here.1.clone(),
            versions: self.sampler.versions.clone(),
            processes: processes(&rows),
            rows,
            runs,
            notes,
        }
    }
}

/// Whether the process of a run on this machine is gone. A container with process ids of its own has a name of its own.
fn is_gone(run: &RunStarted, (boot_id, host): &(Option<String>, Option<String>)) -> bool {
    let is_here = run.boot_id.is_some() && (&run.boot_id, &run.host) == (boot_id, host);
    let has_process = |pid| Path::new(&format!("/proc/{pid}")).exists();
    is_here && run.pid.is_some_and(|pid| !has_process(pid))
}
