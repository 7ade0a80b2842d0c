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
    ("gauge", "plmkit_gpu_memory_retired_pages", "Pages of device memory that were retired; before Ampere.", |gpu| number(gpu.retired_pages)),
    ("gauge", "plmkit_gpu_memory_remapped_rows", "Rows of device memory that were remapped; since Ampere.", |gpu| number(gpu.remapped_rows)),
    ("gauge", "plmkit_gpu_memory_repair_pending", "Whether the next reset repairs device memory, 1 or 0.", |gpu| Some(flag(gpu.repair_pending? > 0))),
    ("gauge", "plmkit_gpu_memory_repair_failed", "Whether device memory could not be repaired, 1 or 0.", |gpu| Some(flag(gpu.repair_failed? > 0))),
    ("gauge", "plmkit_gpu_last_xid", "Number of the last Xid error; absent if there was none.", |gpu| number(gpu.last_xid)),
    ("gauge", "plmkit_gpu_throttled", "Whether anything holds the clocks down, 1 or 0; idling does not count.", |gpu| Some(flag(gpu.throttle.as_ref()?.active()))),
];

#[rustfmt::skip]
const GPU_COUNTS: &[Metric<GpuSample>] = &[
    ("gauge", "plmkit_gpu_processes", "Processes that compute on the GPU.", |gpu| Some(gpu.processes.as_ref()?.0.len() as f64)),
    ("counter", "plmkit_gpu_energy_joules_total", "Energy that the GPU has used since the driver was loaded.", |gpu| gpu.energy_j),
    ("counter", "plmkit_gpu_xid_errors_total", "Xid errors since the driver was opened.", |gpu| number(gpu.xid_errors)),
    ("counter", "plmkit_gpu_pcie_replays_total", "Packets that were sent again over PCIe.", |gpu| number(gpu.pcie_replays)),
    ("counter", "plmkit_gpu_nvlink_errors_total", "Errors of all NVLink connections, corrected ones included.", |gpu| number(gpu.nvlink_errors)),
];

/// The names and units of dcgm-exporter, for dashboards that were made for it.
#[rustfmt::skip]
const DCGM_METRICS: &[Metric<GpuSample>] = &[
    ("gauge", "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |gpu| gpu.gpu_util.map(f64::from)),
    ("gauge", "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", |gpu| gpu.mem_util.map(f64::from)),
    ("gauge", "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", |gpu| number(gpu.mem_used_mib)),
    ("gauge", "DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", |gpu| number(gpu.mem_total_mib?.checked_sub(gpu.mem_used_mib?))),
    ("gauge", "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |gpu| celsius(gpu.temperature_c)),
    ("gauge", "DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", |gpu| celsius(gpu.mem_temperature_c)),
    ("gauge", "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", |gpu| gpu.power_w),
    ("gauge", "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |gpu| gpu.sm_clock_mhz.map(f64::from)),
    ("gauge", "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", |gpu| gpu.mem_clock_mhz.map(f64::from)),
    ("gauge", "DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered, 0 for none.", |gpu| number(gpu.last_xid.or(gpu.xid_errors.filter(|&errors| errors == 0)))),
    ("gauge", "DCGM_FI_PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.", |gpu| ratio(gpu.sm_active)),
    ("gauge", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe is active.", |gpu| ratio(gpu.tensor_active)),
    ("gauge", "DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active.", |gpu| ratio(gpu.dram_active)),
    ("counter", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", |gpu| Some(gpu.energy_j? * 1000.0)),
    ("counter", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", |gpu| number(gpu.pcie_replays)),
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

/// Writes the metrics of whole GPUs by the names of dcgm-exporter.
pub(super) fn write_dcgm(text: &mut MetricsText, rows: &[GpuSample]) {
    let gpus = rows.iter();
    let gpus = gpus.filter(|row| row.index.is_some() && !row.is_instance());
    let gpus = gpus.map(|row| {
        let labels = Labels::default().with("gpu", row.index);
        let labels = labels.with("UUID", row.uuid.as_ref());
        (row, labels.with("modelName", row.name.as_ref()))
    });
    text.table(DCGM_METRICS, &gpus.collect::<Vec<_>>());
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
