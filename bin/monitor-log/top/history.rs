//! Past snapshots of the view.

use std::collections::{HashMap, VecDeque};

use plmkit_logs::GpuSample;

use crate::monitor::Snapshot;

/// From an idle GPU to a busy one.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Snapshots that are kept: as many as the widest terminal shows.
const MAX_SNAPSHOTS: usize = 512;

/// The last snapshot, and the utilisation of each GPU in previous ones.
#[derive(Default)]
pub(super) struct History {
    pub(super) last: Option<Snapshot>,
    /// By number and UUID: MIG instances have the number of their GPU.
    utilization: HashMap<Device, VecDeque<Option<u64>>>,
}

/// A GPU or an instance of one: its number and its UUID.
type Device = (Option<u32>, Option<String>);

impl History {
    pub(super) fn add(&mut self, snapshot: Snapshot) {
        for row in snapshot.gpus() {
            let id = (row.index, row.uuid.clone());
            let past = self.utilization.entry(id).or_default();
            past.push_back(row.gpu_util.map(u64::from));
            if past.len() > MAX_SNAPSHOTS {
                past.pop_front();
            }
        }
        self.last = Some(snapshot);
    }

    /// Returns the last `count` utilisations of a GPU as a line, the latest last. One that is unknown is a dot.
    pub(super) fn utilization(&self, row: &GpuSample, count: usize) -> String {
        let past = self.utilization.get(&(row.index, row.uuid.clone()));
        let skipped = past.map_or(0, |past| past.len().saturating_sub(count));
        let past = past.into_iter().flatten().skip(skipped);
        let block = |percent: u64| BLOCKS[(percent as usize * BLOCKS.len() / 101).min(7)];
        past.map(|percent| percent.map_or('·', block)).collect()
    }
}
