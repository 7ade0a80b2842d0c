//! The numbers of a [`GpuSample`] in one table, which the log, the exporter, the report, `top` and the documents share.

use crate::GpuSample;

/// The unit of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent, 0 to 100.
    Percent,
    /// Mebibytes.
    Mib,
    /// Mebibytes a second.
    MibPerSecond,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watt,
    /// Joules.
    Joule,
    /// Megahertz.
    Megahertz,
    /// A number of things.
    Count,
}

impl Unit {
    /// Returns how it is written after a value.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Mib => "MiB",
            Self::MibPerSecond => "MiB/s",
            Self::Celsius => "°C",
            Self::Watt => "W",
            Self::Joule => "J",
            Self::Megahertz => "MHz",
            Self::Count => "",
        }
    }

    /// Returns a value in the base unit: a ratio, bytes, bytes a second or hertz.
    pub fn in_base(self, value: f64) -> f64 {
        match self {
            // 0.01 is no number of a computer: 57 % would have 16 digits.
            Self::Percent => value / 100.0,
            Self::Mib | Self::MibPerSecond => value * 1_048_576.0,
            Self::Megahertz => value * 1e6,
            Self::Celsius | Self::Watt | Self::Joule | Self::Count => value,
        }
    }
}

/// What a column tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The GPU, as it answered at that moment.
    Gpu,
    /// The GPU, as the driver remembers it: known of a GPU that answers no more.
    Driver,
    /// The host.
    Host,
}

/// A number of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The column of the log.
    pub column: &'static str,
    /// Its name in sentences.
    pub name: &'static str,
    /// The unit of the column.
    pub unit: Unit,
    /// What it tells of.
    pub subject: Subject,
    /// The name for Prometheus, whose unit is the [base unit](Unit::in_base). A name that ends in `_total` is a counter's.
    pub prometheus: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Whether reports have its mean, least and greatest value.
    pub in_reports: bool,
    /// Returns the value.
    pub value: fn(&GpuSample) -> Option<f64>,
}

/// The rows of [`METRICS`]: column and field, name, unit, subject, Prometheus name, whether it is in reports, and help.
macro_rules! metrics {
    ($($column:ident, $name:literal, $unit:ident, $subject:ident, $prometheus:literal, $in_reports:literal, $help:literal;)*) => {
        &[$(Metric {
            column: stringify!($column),
            name: $name,
            unit: Unit::$unit,
            subject: Subject::$subject,
            prometheus: $prometheus,
            help: $help,
            in_reports: $in_reports,
            value: |sample| sample.$column.map(|value| value as f64),
        }),*]
    };
}

/// The numbers of a sample, in the order of their columns.
#[expect(clippy::cast_lossless, reason = "the fields are u32, u64 and f64")]
#[rustfmt::skip]
pub const METRICS: &[Metric] = metrics! {
    gpu_util, "utilization", Percent, Gpu, "plmkit_gpu_utilization_ratio", true, "Share of the time in which a kernel ran.";
    mem_util, "memory access", Percent, Gpu, "plmkit_gpu_memory_access_ratio", false, "Share of the time in which device memory was read or written.";
    mem_used_mib, "memory in use", Mib, Gpu, "plmkit_gpu_memory_used_bytes", true, "Device memory in use.";
    mem_total_mib, "memory", Mib, Gpu, "plmkit_gpu_memory_size_bytes", false, "Device memory.";
    temperature_c, "temperature", Celsius, Gpu, "plmkit_gpu_temperature_celsius", true, "Temperature of the chip.";
    power_w, "power", Watt, Gpu, "plmkit_gpu_power_watts", true, "Power draw of the board.";
    power_limit_w, "power limit", Watt, Gpu, "plmkit_gpu_power_limit_watts", false, "Power limit in force.";
    sm_clock_mhz, "SM clock", Megahertz, Gpu, "plmkit_gpu_sm_clock_hertz", true, "Clock of the streaming multiprocessors.";
    mem_clock_mhz, "memory clock", Megahertz, Gpu, "plmkit_gpu_memory_clock_hertz", true, "Clock of the device memory.";
    energy_j, "energy", Joule, Gpu, "plmkit_gpu_energy_joules_total", false, "Energy that the GPU has used since the driver was loaded.";
    pcie_rx_mib_s, "PCIe read", MibPerSecond, Gpu, "plmkit_gpu_pcie_received_bytes_per_second", false, "Read by the GPU over PCIe.";
    pcie_tx_mib_s, "PCIe written", MibPerSecond, Gpu, "plmkit_gpu_pcie_sent_bytes_per_second", false, "Written by the GPU over PCIe.";
    ecc_corrected, "corrected errors", Count, Gpu, "plmkit_gpu_ecc_corrected_errors_total", false, "Corrected memory errors since the driver was loaded.";
    ecc_uncorrected, "uncorrected errors", Count, Gpu, "plmkit_gpu_ecc_uncorrected_errors_total", false, "Uncorrected memory errors since the driver was loaded.";
    sm_active, "SMs active", Percent, Gpu, "plmkit_gpu_sm_active_ratio", true, "Share of the time, over all streaming multiprocessors, in which one had work.";
    tensor_active, "tensor cores active", Percent, Gpu, "plmkit_gpu_tensor_active_ratio", true, "Share of the time in which the tensor cores computed.";
    dram_active, "device memory active", Percent, Gpu, "plmkit_gpu_dram_active_ratio", true, "Share of the time in which data went to or from device memory.";
    mem_temperature_c, "memory temperature", Celsius, Gpu, "plmkit_gpu_memory_temperature_celsius", false, "Temperature of the device memory.";
    temperature_limit_c, "temperature limit", Celsius, Driver, "plmkit_gpu_temperature_limit_celsius", false, "Temperature of the chip above which the board lowers its clocks: the lower of its maximum for operation and its slowdown.";
    mem_temperature_limit_c, "memory's limit", Celsius, Driver, "plmkit_gpu_memory_temperature_limit_celsius", false, "Temperature of the device memory above which the board lowers its clocks.";
    xid_errors, "Xid errors", Count, Driver, "plmkit_gpu_xid_errors_total", false, "Xid errors since the driver was opened.";
    last_xid, "last Xid", Count, Driver, "plmkit_gpu_last_xid", false, "Number of the last Xid error; absent if there was none.";
    host_cpu_util, "CPU utilization", Percent, Host, "plmkit_host_cpu_utilization_ratio", false, "Share of all CPUs' time that was not idle.";
    host_mem_used_mib, "host memory in use", Mib, Host, "plmkit_host_memory_used_bytes", false, "Memory that is not available to new programs.";
    host_mem_total_mib, "host memory", Mib, Host, "plmkit_host_memory_size_bytes", false, "Memory.";
    host_disk_read_mib_s, "disk read", MibPerSecond, Host, "plmkit_host_disk_read_bytes_per_second", false, "Read from all disks.";
    host_disk_write_mib_s, "disk written", MibPerSecond, Host, "plmkit_host_disk_written_bytes_per_second", false, "Written to all disks.";
    host_disk_free_mib, "disk free", Mib, Host, "plmkit_host_disk_free_bytes", false, "Free space for this user on the file system of the log.";
};

impl Metric {
    /// Returns the metric of a column.
    pub fn of(column: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.column == column)
    }

    /// Whether the value only grows until the driver is loaded again.
    pub fn is_counter(&self) -> bool {
        self.prometheus.ends_with("_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu_csv::HEADER;

    #[test]
    fn every_metric_is_a_column_and_every_number_of_the_log_a_metric() {
        let others = [
            "timestamp",
            "boot_id",
            "boot_s",
            "index",
            "uuid",
            "name",
            "throttle",
            "processes",
            "foreign_processes",
            "interval_s",
        ];
        let columns = HEADER.trim_end().split(',');
        let numbers = columns.filter(|column| !others.contains(column));
        let metrics = METRICS.iter().map(|metric| metric.column);
        assert_eq!(metrics.collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
    }

    #[test]
    fn a_value_in_the_base_unit_has_the_name_of_that_unit() {
        for metric in METRICS {
            let ends = match metric.unit {
                Unit::Percent => "_ratio",
                Unit::Mib => "_bytes",
                Unit::MibPerSecond => "_bytes_per_second",
                Unit::Celsius => "_celsius",
                Unit::Watt => "_watts",
                Unit::Joule => "_joules_total",
                Unit::Megahertz => "_hertz",
                Unit::Count => "",
            };
            assert!(metric.prometheus.ends_with(ends), "{}", metric.prometheus);
        }
    }
}
