//! Families about the host.

use super::Family;
use super::family::Labels;
use crate::GpuSample;

const MIB: f64 = 1_048_576.0;

/// Families of the host's columns of a row.
pub(super) fn families(row: &GpuSample) -> Vec<Family> {
    let mib = |mib: Option<u64>| mib.map(|mib| mib as f64 * MIB);
    let rate = |mib_s: Option<f64>| mib_s.map(|mib_s| mib_s * MIB);
    [
        (
            "plmkit_host_cpu_utilization_ratio",
            "ratio",
            "Share of all CPUs' time that was not idle.",
            row.host_cpu_util.map(|percent| percent / 100.0),
        ),
        (
            "plmkit_host_memory_used_bytes",
            "bytes",
            "Memory that no new program could have.",
            mib(row.host_mem_used_mib),
        ),
        (
            "plmkit_host_memory_size_bytes",
            "bytes",
            "Memory.",
            mib(row.host_mem_total_mib),
        ),
        (
            "plmkit_host_disk_read_bytes_per_second",
            "bytes_per_second",
            "Read from all disks.",
            rate(row.host_disk_read_mib_s),
        ),
        (
            "plmkit_host_disk_written_bytes_per_second",
            "bytes_per_second",
            "Written to all disks.",
            rate(row.host_disk_write_mib_s),
        ),
        (
            "plmkit_host_disk_free_bytes",
            "bytes",
            "What is left for this user on the file system that is watched.",
            mib(row.host_disk_free_mib),
        ),
    ]
    .into_iter()
    .map(|(name, unit, help, value)| {
        let mut family = Family::gauge(name, unit, help);
        family.add(&Labels::default(), value);
        family
    })
    .collect()
}
