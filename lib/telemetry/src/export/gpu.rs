//! Metrics of GPUs and of the host.

use plmkit_logs::GpuSample;

use super::text::{Labels, Metric, MetricsText};
use super::{flag, number};

#[rustfmt::skip]
const GPU_METRICS: &[Metric<GpuSample>] = &[
    ("gauge", "plmkit_gpu_utilization_ratio", "Share of the time in which a kernel ran.", |gpu| ratio(gpu.gpu_util)),
    ("gauge", "plmkit_gpu_memory_access_ratio", "Share of the time in which device memory was read or written.", |gpu| ratio(gpu.mem_util)),
    ("gauge", "plmkit_gpu_memory_used_bytes", "Device memory in use.", |gpu| bytes(gpu.mem_used_mib)),
    ("gauge", "plmkit_gpu_memory_size_bytes", "Device memory.", |gpu| bytes(gpu.mem_total_mib)),
    ("gauge", "plmkit_gpu_temperature_celsius", "Temperature of the chip.", |gpu| celsius(gpu.temperature_c)),
    ("gauge", "plmkit_gpu_power_watts", "Power draw of the board.", |gpu| gpu.power_w),
    ("gauge", "plmkit_gpu_power_limit_watts", "Power limit in force.", |gpu| gpu.power_limit_w),
    ("gauge", "plmkit_gpu_sm_clock_hertz", "Clock of the streaming multiprocessors.", |gpu| hertz(gpu.sm_clock_mhz)),
    ("gauge", "plmkit_gpu_memory_clock_hertz", "Clock of the device memory.", |gpu| hertz(gpu.mem_clock_mhz)),
    ("gauge", "plmkit_gpu_pcie_received_bytes_per_second", "Read by the GPU over PCIe.", |gpu| byte_rate(gpu.pcie_rx_mib_s)),
    ("gauge", "plmkit_gpu_pcie_sent_bytes_per_second", "Written by the GPU over PCIe.", |gpu| byte_rate(gpu.pcie_tx_mib_s)),
    ("gauge", "plmkit_gpu_sm_active_ratio", "Share of the time, over all streaming multiprocessors, in which one had work.", |gpu| ratio(gpu.sm_active)),
    ("gauge", "plmkit_gpu_tensor_active_ratio", "Share of the time in which the tensor cores computed.", |gpu| ratio(gpu.tensor_active)),
    ("gauge", "plmkit_gpu_dram_active_ratio", "Share of the time in which data went to or from device memory.", |gpu| ratio(gpu.dram_active)),
    ("gauge", "plmkit_gpu_memory_temperature_celsius", "Temperature of the device memory.", |gpu| celsius(gpu.mem_temperature_c)),
    ("gauge", "plmkit_gpu_temperature_limit_celsius", "Temperature of the chip above which the board lowers its clocks.", |gpu| celsius(gpu.temperature_limit_c)),
    ("gauge", "plmkit_gpu_memory_temperature_limit_celsius", "Temperature of the device memory above which the board lowers its clocks.", |gpu| celsius(gpu.mem_temperature_limit_c)),
    ("gauge", "plmkit_gpu_last_xid", "Number of the last Xid error; absent if there was none.", |gpu| number(gpu.last_xid)),
    ("gauge", "plmkit_gpu_throttled", "Whether anything holds the clocks down, 1 or 0; idling does not count.", |gpu| Some(flag(gpu.throttle.as_ref()?.active()))),
];

#[rustfmt::skip]
const GPU_COUNTS: &[Metric<GpuSample>] = &[
    ("gauge", "plmkit_gpu_processes", "Processes that compute on the GPU.", |gpu| Some(gpu.processes.as_ref()?.0.len() as f64)),
    ("counter", "plmkit_gpu_energy_joules_total", "Energy that the GPU has used since the driver was loaded.", |gpu| gpu.energy_j),
    ("counter", "plmkit_gpu_xid_errors_total", "Xid errors since the driver was opened.", |gpu| number(gpu.xid_errors)),
];

#[rustfmt::skip]
const HOST_METRICS: &[Metric<GpuSample>] = &[
    ("gauge", "plmkit_host_cpu_utilization_ratio", "Share of all CPUs' time that was not idle.", |row| ratio(row.host_cpu_util)),
    ("gauge", "plmkit_host_memory_used_bytes", "Memory that no new program could have.", |row| bytes(row.host_mem_used_mib)),
    ("gauge", "plmkit_host_memory_size_bytes", "Memory.", |row| bytes(row.host_mem_total_mib)),
    ("gauge", "plmkit_host_disk_read_bytes_per_second", "Read from all disks.", |row| byte_rate(row.host_disk_read_mib_s)),
    ("gauge", "plmkit_host_disk_written_bytes_per_second", "Written to all disks.", |row| byte_rate(row.host_disk_write_mib_s)),
    ("gauge", "plmkit_host_disk_free_bytes", "What is left for this user on the file system that is watched.", |row| bytes(row.host_disk_free_mib)),
];

fn ratio(percent: Option<impl Into<f64>>) -> Option<f64> {
    Some(percent?.into() / 100.0)
}

fn bytes(mib: Option<u64>) -> Option<f64> {
    byte_rate(mib.map(|mib| mib as f64))
}

fn byte_rate(mib_s: Option<f64>) -> Option<f64> {
    Some(mib_s? * 1_048_576.0)
}

fn hertz(mhz: Option<u32>) -> Option<f64> {
    Some(f64::from(mhz?) * 1e6)
}

fn celsius(celsius: Option<u32>) -> Option<f64> {
    celsius.map(f64::from)
}

/// Writes the metrics of the rows of a moment.
pub(super) fn write(text: &mut MetricsText, rows: &[GpuSample]) {
    let gpus: Vec<(&GpuSample, Labels)> = rows
        .iter()
        .filter(|row| row.index.is_some())
        .map(|row| {
            let uuid = Labels::default().with("uuid", row.uuid.as_ref());
            (row, uuid.with("index", row.index))
        })
        .collect();
    text.metric(
        "gauge",
        "plmkit_gpu_info",
        "A GPU that the driver sees, or saw.",
        gpus.iter()
            .map(|(gpu, labels)| (labels.with("name", gpu.name.as_ref()), Some(1.0))),
    );
    text.table(GPU_METRICS, &gpus);
    text.metric(
        "gauge",
        "plmkit_gpu_throttle_reason",
        "What holds the clocks down, by the driver's names.",
        gpus.iter().flat_map(|(gpu, labels)| {
            let reasons = gpu.throttle.iter().flat_map(|throttle| &throttle.0);
            reasons.map(|reason| (labels.with("reason", Some(reason)), Some(1.0)))
        }),
    );
    text.table(GPU_COUNTS, &gpus);
    text.metric(
        "counter",
        "plmkit_gpu_ecc_errors_total",
        "Memory errors since the driver was loaded, corrected and not.",
        gpus.iter().flat_map(|(gpu, labels)| {
            let errors = [
                ("corrected", gpu.ecc_corrected),
                ("uncorrected", gpu.ecc_uncorrected),
            ];
            errors.map(|(kind, count)| (labels.with("kind", Some(kind)), number(count)))
        }),
    );
    if let Some(row) = rows.first() {
        text.table(HOST_METRICS, &[(row, Labels::default())]);
    }
}
