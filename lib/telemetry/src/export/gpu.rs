//! Metrics of GPUs and of the host.

use plmkit_logs::GpuSample;

use super::text::{Labels, Metric, MetricsText};

const MIB: f64 = 1_048_576.0;

const GPU_GAUGES: [Metric<GpuSample>; 14] = [
    (
        "plmkit_gpu_utilization_ratio",
        "Share of the time in which a kernel ran.",
        |row| Some(f64::from(row.gpu_util?) / 100.0),
    ),
    (
        "plmkit_gpu_memory_access_ratio",
        "Share of the time in which device memory was read or written.",
        |row| Some(f64::from(row.mem_util?) / 100.0),
    ),
    (
        "plmkit_gpu_memory_used_bytes",
        "Device memory in use.",
        |row| Some(row.mem_used_mib? as f64 * MIB),
    ),
    ("plmkit_gpu_memory_size_bytes", "Device memory.", |row| {
        Some(row.mem_total_mib? as f64 * MIB)
    }),
    (
        "plmkit_gpu_temperature_celsius",
        "Temperature of the chip.",
        |row| row.temperature_c.map(f64::from),
    ),
    (
        "plmkit_gpu_power_watts",
        "Power draw of the board.",
        |row| row.power_w,
    ),
    (
        "plmkit_gpu_power_limit_watts",
        "Power limit in force.",
        |row| row.power_limit_w,
    ),
    (
        "plmkit_gpu_sm_clock_hertz",
        "Clock of the streaming multiprocessors.",
        |row| Some(f64::from(row.sm_clock_mhz?) * 1e6),
    ),
    (
        "plmkit_gpu_memory_clock_hertz",
        "Clock of the device memory.",
        |row| Some(f64::from(row.mem_clock_mhz?) * 1e6),
    ),
    (
        "plmkit_gpu_pcie_received_bytes_per_second",
        "Read by the GPU over PCIe.",
        |row| Some(row.pcie_rx_mib_s? * MIB),
    ),
    (
        "plmkit_gpu_pcie_sent_bytes_per_second",
        "Written by the GPU over PCIe.",
        |row| Some(row.pcie_tx_mib_s? * MIB),
    ),
    (
        "plmkit_gpu_sm_active_ratio",
        "Share of the time, over all streaming multiprocessors, in which one had work.",
        |row| Some(row.sm_active? / 100.0),
    ),
    (
        "plmkit_gpu_tensor_active_ratio",
        "Share of the time in which the tensor cores computed.",
        |row| Some(row.tensor_active? / 100.0),
    ),
    (
        "plmkit_gpu_dram_active_ratio",
        "Share of the time in which data went to or from device memory.",
        |row| Some(row.dram_active? / 100.0),
    ),
];

const HOST_GAUGES: [Metric<GpuSample>; 6] = [
    (
        "plmkit_host_cpu_utilization_ratio",
        "Share of all CPUs' time that was not idle.",
        |row| Some(row.host_cpu_util? / 100.0),
    ),
    (
        "plmkit_host_memory_used_bytes",
        "Memory that no new program could have.",
        |row| Some(row.host_mem_used_mib? as f64 * MIB),
    ),
    ("plmkit_host_memory_size_bytes", "Memory.", |row| {
        Some(row.host_mem_total_mib? as f64 * MIB)
    }),
    (
        "plmkit_host_disk_read_bytes_per_second",
        "Read from all disks.",
        |row| Some(row.host_disk_read_mib_s? * MIB),
    ),
    (
        "plmkit_host_disk_written_bytes_per_second",
        "Written to all disks.",
        |row| Some(row.host_disk_write_mib_s? * MIB),
    ),
    (
        "plmkit_host_disk_free_bytes",
        "What is left for this user on the file system that is watched.",
        |row| Some(row.host_disk_free_mib? as f64 * MIB),
    ),
];

/// Adds the metrics of the rows of a moment.
pub(super) fn write(text: &mut MetricsText, rows: &[GpuSample]) {
    let gpus = rows.iter().filter(|row| row.index.is_some());
    let gpus: Vec<(&GpuSample, Labels)> = gpus
        .map(|row| {
            let uuid = Labels::default().with("uuid", row.uuid.as_ref());
            (row, uuid.with("index", row.index))
        })
        .collect();
    let names = gpus
        .iter()
        .map(|(row, labels)| (labels.with("name", row.name.as_ref()), Some(1.0)));
    text.metric(
        "gauge",
        "plmkit_gpu_info",
        "A GPU that the driver sees, or saw.",
        names,
    );
    text.table("gauge", &GPU_GAUGES, &gpus);
    write_clocks(text, &gpus);
    write_counts(text, &gpus);
    if let Some(row) = rows.first() {
        text.table("gauge", &HOST_GAUGES, &[(row, Labels::default())]);
    }
}

/// What holds the clocks down.
fn write_clocks(text: &mut MetricsText, gpus: &[(&GpuSample, Labels)]) {
    let throttles = || {
        gpus.iter()
            .filter_map(|(row, labels)| Some((row.throttle.as_ref()?, labels)))
    };
    text.metric(
        "gauge",
        "plmkit_gpu_throttled",
        "Whether anything holds the clocks down, 1 or 0; idling does not count.",
        throttles().map(|(throttle, labels)| {
            let active = f64::from(u8::from(throttle.active()));
            (labels.clone(), Some(active))
        }),
    );
    text.metric(
        "gauge",
        "plmkit_gpu_throttle_reason",
        "What holds the clocks down, by the driver's names.",
        throttles().flat_map(|(throttle, labels)| {
            let reasons = throttle.0.iter();
            reasons.map(|reason| (labels.with("reason", Some(reason)), Some(1.0)))
        }),
    );
}

fn write_counts(text: &mut MetricsText, gpus: &[(&GpuSample, Labels)]) {
    let processes: [Metric<GpuSample>; 1] = [(
        "plmkit_gpu_processes",
        "Processes that compute on the GPU.",
        |row| Some(row.processes.as_ref()?.0.len() as f64),
    )];
    text.table("gauge", &processes, gpus);
    let energy: [Metric<GpuSample>; 1] = [(
        "plmkit_gpu_energy_joules_total",
        "Energy that the GPU has used since the driver was loaded.",
        |row| row.energy_j,
    )];
    text.table("counter", &energy, gpus);
    text.metric(
        "counter",
        "plmkit_gpu_ecc_errors_total",
        "Memory errors since the driver was loaded, corrected and not.",
        gpus.iter().flat_map(|(row, labels)| {
            let kinds = [
                ("corrected", row.ecc_corrected),
                ("uncorrected", row.ecc_uncorrected),
            ];
            kinds.map(|(kind, count)| {
                (
                    labels.with("kind", Some(kind)),
                    count.map(|count| count as f64),
                )
            })
        }),
    );
}
