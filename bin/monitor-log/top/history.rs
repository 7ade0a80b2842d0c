//! What the view remembers from snapshot to snapshot.

use std::collections::{HashMap, VecDeque};

use plmkit_logs::GpuSample;

use crate::monitor::Snapshot;

/// Snapshots: as many as the widest terminal shows.
const MOMENTS: usize = 512;

/// The last snapshot, and of each GPU the ones before it.
#[derive(Default)]
pub(super) struct History {
    pub(super) last: Option<Snapshot>,
    /// The commands of the processes on GPUs.
    pub(super) commands: HashMap<u32, String>,
    /// What people should know, the latest last.
    pub(super) notes: Vec<String>,
    utilization: HashMap<u32, VecDeque<Option<u64>>>,
}

impl History {
    /// Takes in a snapshot; `command` finds the name of a process, where it can be had.
    pub(super) fn add(&mut self, mut snapshot: Snapshot, command: impl Fn(u32) -> Option<String>) {
        for (index, row) in gpus(&snapshot.rows) {
            let past = self.utilization.entry(index).or_default();
            past.push_back(row.gpu_util.map(u64::from));
            if past.len() > MOMENTS {
                past.pop_front();
            }
        }
        let processes = snapshot
            .rows
            .iter()
            .filter_map(|row| row.processes.as_ref());
        let pids = processes
            .flat_map(|processes| &processes.0)
            .map(|process| process.pid);
        // A number may be another process's by now.
        self.commands = pids.filter_map(|pid| Some((pid, command(pid)?))).collect();
        self.notes.append(&mut snapshot.notes);
        self.last = Some(snapshot);
    }

    /// The last `count` utilisations of a GPU in percent, the latest last; `None` where it was not known.
    pub(super) fn utilization(&self, index: u32, count: usize) -> Vec<Option<u64>> {
        let past = self.utilization.get(&index);
        let skipped = past.map_or(0, |past| past.len().saturating_sub(count));
        past.into_iter().flatten().skip(skipped).copied().collect()
    }
}

/// The rows of GPUs, with their numbers.
pub(super) fn gpus(rows: &[GpuSample]) -> impl Iterator<Item = (u32, &GpuSample)> {
    rows.iter().filter_map(|row| Some((row.index?, row)))
}
