//! The host's CPUs and memory, from `/proc`.

use procfs::{CpuTime, Current, CurrentSI, KernelStats, Meminfo};

use plmkit_logs::GpuSample;

const MIB: u64 = 1 << 20;

/// Reads the host. CPU utilisation is measured between two readings: the first has none.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// CPU time since boot, summed over all CPUs: in all, and idle.
    previous: Option<(u64, u64)>,
}

impl Host {
    /// Fills in the host's columns. A value that cannot be read stays empty.
    pub(crate) fn read(&mut self, sample: &mut GpuSample) {
        let ticks = KernelStats::current().ok().map(|stats| ticks(&stats.total));
        let both = ticks.zip(self.previous);
        sample.host_cpu_util = both.and_then(|(now, before)| utilization(now, before));
        self.previous = ticks;
        if let Ok(memory) = Meminfo::current() {
            sample.host_mem_total_mib = Some(memory.mem_total / MIB);
            // Page cache is available to new programs, so it does not count as used.
            sample.host_mem_used_mib = memory
                .mem_available
                .map(|available| memory.mem_total.saturating_sub(available) / MIB);
        }
    }
}

/// Leaves out the time of guests, which `user` and `nice` include.
fn ticks(time: &CpuTime) -> (u64, u64) {
    let optional = [time.irq, time.softirq, time.steal];
    let busy = time.user + time.nice + time.system + optional.iter().flatten().sum::<u64>();
    let idle = time.idle + time.iowait.unwrap_or_default();
    (busy + idle, idle)
}

/// Returns percent, to a tenth; `None` if no time has passed or the counters went backwards.
fn utilization((total, idle): (u64, u64), (total_before, idle_before): (u64, u64)) -> Option<f64> {
    let total = total.checked_sub(total_before);
    let total = total.filter(|&total| total > 0)?;
    // The kernel may correct idle time downwards.
    let idle = idle.saturating_sub(idle_before).min(total);
    let percent = (total - idle) as f64 / total as f64 * 100.0;
    Some((percent * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_the_share_of_ticks_that_were_not_idle() {
        let before = (1000, 900);
        for (total, idle, expected, case) in [
            (1200, 950, Some(75.0), "busy"),
            (1200, 1100, Some(0.0), "idle"),
            (1003, 902, Some(33.3), "rounded"),
            (1000, 900, None, "no time has passed"),
            (10, 5, None, "counters went backwards"),
            (1100, 890, Some(100.0), "idle time was corrected"),
        ] {
            let found = utilization((total, idle), before);
            assert_eq!(found, expected, "{case}");
        }
    }
}
