//! Families about GPUs.

use super::Family;
use super::family::{Kind, Labels};
use crate::GpuSample;

const MIB: f64 = 1_048_576.0;

/// A gauge, and where its value comes from.
type Field = (
    &'static str,
    &'static str,
    &'static str,
    fn(&GpuSample) -> Option<f64>,
);

/// Name, unit, meaning, value.
const GAUGES: [Field; 14] = [
    (
        "plmkit_gpu_utilization_ratio",
        "ratio",
        "Share of the time in which a kernel ran.",
        |row| Some(f64::from(row.gpu_util?) / 100.0),
    ),
    (
        "plmkit_gpu_memory_access_ratio",
        "ratio",
        "Share of the time in which device memory was read or written.",
        |row| Some(f64::from(row.mem_util?) / 100.0),
    ),
    (
        "plmkit_gpu_memory_used_bytes",
        "bytes",
        "Device memory in use.",
        |row| Some(row.mem_used_mib? as f64 * MIB),
    ),
    (
        "plmkit_gpu_memory_size_bytes",
        "bytes",
        "Device memory.",
        |row| Some(row.mem_total_mib? as f64 * MIB),
    ),
    (
        "plmkit_gpu_temperature_celsius",
        "celsius",
        "Temperature of the chip.",
        |row| row.temperature_c.map(f64::from),
    ),
    (
        "plmkit_gpu_power_watts",
        "watts",
        "Power draw of the board.",
        |row| row.power_w,
    ),
    (
        "plmkit_gpu_power_limit_watts",
        "watts",
        "Power limit in force.",
        |row| row.power_limit_w,
    ),
    (
        "plmkit_gpu_sm_clock_hertz",
        "hertz",
        "Clock of the streaming multiprocessors.",
        |row| Some(f64::from(row.sm_clock_mhz?) * 1e6),
    ),
    (
        "plmkit_gpu_memory_clock_hertz",
        "hertz",
        "Clock of the device memory.",
        |row| Some(f64::from(row.mem_clock_mhz?) * 1e6),
    ),
    (
        "plmkit_gpu_pcie_received_bytes_per_second",
        "bytes_per_second",
        "Read by the GPU over PCIe.",
        |row| Some(row.pcie_rx_mib_s? * MIB),
    ),
    (
        "plmkit_gpu_pcie_sent_bytes_per_second",
        "bytes_per_second",
        "Written by the GPU over PCIe.",
        |row| Some(row.pcie_tx_mib_s? * MIB),
    ),
    (
        "plmkit_gpu_sm_active_ratio",
        "ratio",
        "Share of the time, over all streaming multiprocessors, in which one had work.",
        |row| Some(row.sm_active? / 100.0),
    ),
    (
        "plmkit_gpu_tensor_active_ratio",
        "ratio",
        "Share of the time in which the tensor cores computed.",
        |row| Some(row.tensor_active? / 100.0),
    ),
    (
        "plmkit_gpu_dram_active_ratio",
        "ratio",
        "Share of the time in which data went to or from device memory.",
        |row| Some(row.dram_active? / 100.0),
    ),
];

/// Families of the rows of a moment.
pub(super) fn families(rows: &[GpuSample]) -> Vec<Family> {
    let gpus: Vec<(&GpuSample, Labels)> = rows
        .iter()
        .filter(|row| row.index.is_some())
        .map(|row| (row, labels(row)))
        .collect();
    let mut info = Family::info("plmkit_gpu", "A GPU that the driver sees, or saw.");
    for (row, labels) in &gpus {
        info.add(&labels.with("name", row.name.as_ref()), Some(1.0));
    }
    let mut families = vec![info];
    for (name, unit, help, value) in GAUGES {
        let mut family = Family::gauge(name, unit, help);
        for (row, labels) in &gpus {
            family.add(labels, value(row));
        }
        families.push(family);
    }
    families.extend(rest(&gpus));
    families
}

fn labels(row: &GpuSample) -> Labels {
    Labels::default()
        .with("uuid", row.uuid.as_ref())
        .with("index", row.index)
}

fn rest(gpus: &[(&GpuSample, Labels)]) -> [Family; 5] {
    let mut throttled = Family::count(
        "plmkit_gpu_throttled",
        "Whether anything holds the clocks down, 1 or 0; idling does not count.",
    );
    let mut reason = Family::count(
        "plmkit_gpu_throttle_reason",
        "What holds the clocks down, by the driver's names.",
    );
    let mut processes = Family::count("plmkit_gpu_processes", "Processes that compute on the GPU.");
    let mut energy = Family::new(
        Kind::Counter,
        "plmkit_gpu_energy_joules",
        Some("joules"),
        "Energy that the GPU has used since the driver was loaded.",
    );
    let mut errors = Family::counter(
        "plmkit_gpu_ecc_errors",
        "Memory errors since the driver was loaded, corrected and not.",
    );
    for (row, labels) in gpus {
        if let Some(throttle) = &row.throttle {
            throttled.add(labels, Some(f64::from(u8::from(throttle.active()))));
            for name in &throttle.0 {
                reason.add(&labels.with("reason", Some(name)), Some(1.0));
            }
        }
        processes.add(
            labels,
            row.processes
                .as_ref()
                .map(|processes| processes.0.len() as f64),
        );
        energy.add(labels, row.energy_j);
        for (kind, count) in [
            ("corrected", row.ecc_corrected),
            ("uncorrected", row.ecc_uncorrected),
        ] {
            errors.add(
                &labels.with("kind", Some(kind)),
                count.map(|count| count as f64),
            );
        }
    }
    [throttled, reason, processes, energy, errors]
}
