//! The host's CPUs, memory and disks, from `/proc`.

mod disk;

use std::path::Path;

use procfs::{CpuTime, Current, CurrentSI, KernelStats, Meminfo};

use disk::Disks;
use plmkit_logs::GpuSample;

const MIB: u64 = 1 << 20;

/// Reads the host. CPU utilisation is the one between two readings: the first has none.
#[derive(Debug)]
pub(crate) struct Host {
    previous: Option<Ticks>,
    disks: Disks,
}

/// CPU time since boot, summed over all CPUs.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    total: u64,
    idle: u64,
}

impl Host {
    /// Free space is that of the file system on which `watched` is.
    pub(crate) fn new(watched: Option<&Path>) -> Self {
        Self {
            previous: None,
            disks: Disks::new(watched),
        }
    }

    /// Fills in the host's columns; what cannot be read stays empty.
    pub(crate) fn read(&mut self, sample: &mut GpuSample) {
        let ticks = KernelStats::current()
            .ok()
            .map(|stats| Ticks::from(&stats.total));
        sample.host_cpu_util = ticks
            .zip(self.previous)
            .and_then(|(now, before)| now.utilization_since(before));
        self.previous = ticks;
        self.disks.read(sample);
        if let Ok(memory) = Meminfo::current() {
            sample.host_mem_total_mib = Some(memory.mem_total / MIB);
            // Page cache is not use: what a new program could have is what the kernel calls available.
            sample.host_mem_used_mib = memory
                .mem_available
                .map(|available| memory.mem_total.saturating_sub(available) / MIB);
        }
    }
}

impl Ticks {
    /// Percent, to a tenth; `None` where no time has passed or the counters went backwards.
    fn utilization_since(self, before: Self) -> Option<f64> {
        let total = self
            .total
            .checked_sub(before.total)
            .filter(|&total| total > 0)?;
        // The kernel may take back waiting for disk that it has counted as idle.
        let idle = self.idle.saturating_sub(before.idle).min(total);
        Some(((total - idle) as f64 / total as f64 * 1000.0).round() / 10.0)
    }
}

impl From<&CpuTime> for Ticks {
    /// Guests' time is left out: it is part of `user` and `nice` already.
    fn from(time: &CpuTime) -> Self {
        let or_zero = |ticks: Option<u64>| ticks.unwrap_or_default();
        let idle = time.idle + or_zero(time.iowait);
        let busy = time.user
            + time.nice
            + time.system
            + or_zero(time.irq)
            + or_zero(time.softirq)
            + or_zero(time.steal);
        Self {
            total: busy + idle,
            idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plmkit_logs::Timestamp;

    #[test]
    fn utilization_is_the_share_of_ticks_that_were_not_idle() {
        let before = Ticks {
            total: 1000,
            idle: 900,
        };
        let since = |total, idle| Ticks { total, idle }.utilization_since(before);
        assert_eq!(since(1200, 950), Some(75.0));
        assert_eq!(since(1200, 1100), Some(0.0));
        assert_eq!(since(1003, 902), Some(33.3));
        assert_eq!(since(1000, 900), None, "no time has passed");
        assert_eq!(since(10, 5), None, "counters went backwards");
        assert_eq!(since(1100, 890), Some(100.0), "idle was taken back");
    }

    #[test]
    fn the_first_reading_knows_the_memory_and_not_the_cpus() {
        let mut host = Host::new(None);
        let mut sample = GpuSample::at(Timestamp::now());
        host.read(&mut sample);
        assert_eq!(sample.host_cpu_util, None);
        let (used, total) = (
            sample.host_mem_used_mib.unwrap(),
            sample.host_mem_total_mib.unwrap(),
        );
        assert!(0 < used && used < total, "{used} of {total}");
    }
}
