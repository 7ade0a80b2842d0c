//! Past snapshots of the view.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use plmkit_logs::GpuSample;

use crate::monitor::Snapshot;

/// Snapshots that are kept: as many as the widest terminal shows.
const MAX_SNAPSHOTS: usize = 512;

/// The last snapshot, and the utilisation of each GPU in previous ones.
#[derive(Default)]
pub(super) struct History {
    pub(super) last: Option<Snapshot>,
    /// How old the last snapshot is, if it is older than it should be.
    pub(super) stale: Option<Duration>,
    /// The commands of the processes on GPUs, by process id.
    pub(super) commands: HashMap<u32, String>,
    /// Messages for people, the latest last.
    pub(super) notes: Vec<String>,
    /// By number and UUID: MIG instances have the number of their GPU.
    utilization: HashMap<Device, VecDeque<Option<u64>>>,
}

/// A GPU or an instance of one: its number and its UUID.
type Device = (Option<u32>, Option<String>);

impl History {
    /// Adds a snapshot. `command` returns the name of a process, if known.
    pub(super) fn add(&mut self, mut snapshot: Snapshot, command: impl Fn(u32) -> Option<String>) {
        for (_, row) in gpus(&snapshot.rows) {
            let id = (row.index, row.uuid.clone());
            let past = self.utilization.entry(id).or_default();
            past.push_back(row.gpu_util.map(u64::from));
            if past.len() > MAX_SNAPSHOTS {
                past.pop_front();
            }
        }
        let processes = snapshot.rows.iter().flat_map(|row| &row.processes);
        let processes = processes.flat_map(|processes| &processes.0);
        // All anew: process ids are reused.
        self.commands = processes
            .filter_map(|process| Some((process.pid, command(process.pid)?)))
            .collect();
        self.notes.append(&mut snapshot.notes);
        self.last = Some(snapshot);
    }

    /// Returns the last `count` utilisations of a GPU in percent, the latest last; `None` if unknown.
    pub(super) fn utilization(&self, row: &GpuSample, count: usize) -> Vec<Option<u64>> {
        let past = self.utilization.get(&(row.index, row.uuid.clone()));
        let skipped = past.map_or(0, |past| past.len().saturating_sub(count));
        past.into_iter().flatten().skip(skipped).copied().collect()
    }
}

/// Returns the rows of GPUs with their numbers.
pub(super) fn gpus(rows: &[GpuSample]) -> impl Iterator<Item = (u32, &GpuSample)> {
    rows.iter().filter_map(|row| Some((row.index?, row)))
}
