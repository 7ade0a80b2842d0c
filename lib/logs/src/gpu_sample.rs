//! A sample of a GPU at one moment. Its numbers are one table, which the log, the exporter, the report, `top` and the
//! documents share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::SerializeDisplay;

use crate::clock::Timestamp;
use crate::thresholds::{GPU_HOT_ABOVE_C, GPU_HOT_MARGIN_C};
use crate::throttle::Throttle;

/// What a column tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The GPU, as it answered at that moment.
    Gpu,
    /// The GPU, as the driver remembers it: known of a GPU that answers no more.
    Driver,
}

/// A number of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The column of the log.
    pub column: &'static str,
    /// The unit of the column, as it is written after a value; empty for a number of things.
    pub unit: &'static str,
    /// What it tells of.
    pub subject: Subject,
    /// The name for Prometheus, whose unit is the [base unit](Self::in_base). A name that ends in `_total` is a counter's.
    pub prometheus: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Whether reports have its mean, least and greatest value.
    pub in_reports: bool,
    /// Returns the value.
    pub value: fn(&GpuSample) -> Option<f64>,
}

/// Makes the sample, the header of its log, what reads its columns, and the table of its numbers. First come the other columns,
/// each with the form of its text. A number has a column, which is its field, a type, a unit, a subject, a name for Prometheus,
/// whether it is in reports, and what it is.
macro_rules! samples {
    ($($other:ident $form:expr),*; $($column:ident: $type:ty, $unit:literal, $subject:ident, $prometheus:literal, $in_reports:literal, $help:literal;)*) => {
        /// One row of a GPU sample log: a GPU at one moment.
        ///
        /// A value that the driver does not give is `None`, never 0. Utilisations are percentages, 0 to 100, over the time since the previous sample, or over
        /// the driver's own interval.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct GpuSample {
            /// The time of day.
            pub timestamp: Timestamp,
            /// The [boot](crate::boot_id) of the machine, for `boot_s`.
            pub boot_id: Option<String>,
            /// The time in [seconds since boot](crate::boot_seconds).
            pub boot_s: Option<f64>,
            /// Time between samples that the recording was asked for.
            pub interval_s: Option<f64>,
            /// The driver's number of the GPU; for a MIG instance, that of its GPU.
            pub index: Option<u32>,
            /// The UUID of the GPU, `GPU-…`, or of a MIG instance, `MIG-…`. An instance has memory only.
            pub uuid: Option<String>,
            pub name: Option<String>,
            /// What holds the clocks down.
            pub throttle: Option<Throttle>,
            /// Processes that compute on the GPU; in a log, a list of JSON.
            pub processes: Option<Processes>,
            $(#[doc = $help] pub $column: Option<$type>,)*
        }

        /// The columns in order: the fields of [`GpuSample`].
        pub const HEADER: &str = concat!(
            "timestamp", $(",", stringify!($other),)* $(",", stringify!($column),)* "\n"
        );

        /// The numbers of a sample, in the order of their columns.
        #[expect(clippy::cast_lossless, reason = "the fields are u32, u64 and f64")]
        pub const METRICS: &[Metric] = &[$(Metric {
            column: stringify!($column),
            unit: $unit,
            subject: Subject::$subject,
            prometheus: $prometheus,
            help: $help,
            in_reports: $in_reports,
            value: |sample| sample.$column.map(|value| value as f64),
        }),*];

        impl GpuSample {
            /// Returns what reads the text of a column into its field; `None` for an unknown column.
            pub(crate) fn column(name: &str) -> Option<ReadColumn> {
                Some(match name {
                    "timestamp" => |sample, text| text.parse().map(|time| sample.timestamp = time).map_err(|_| TIME),
                    $(stringify!($other) => |sample, text| read(&mut sample.$other, text, $form),)*
                    $(stringify!($column) => |sample, text| read(&mut sample.$column, text, NUMBER),)*
                    _ => return None,
                })
            }
        }
    };
}

#[rustfmt::skip]
samples! {
    boot_id "", boot_s NUMBER, interval_s NUMBER, index NUMBER, uuid "", name "", throttle "", processes PROCESSES;
    gpu_util: u32, "%", Gpu, "plmkit_gpu_utilization_ratio", true, "Share of the time in which a kernel ran.";
    mem_util: u32, "%", Gpu, "plmkit_gpu_memory_access_ratio", false, "Share of the time in which device memory was read or written.";
    mem_used_mib: u64, "MiB", Gpu, "plmkit_gpu_memory_used_bytes", true, "Device memory in use.";
    mem_total_mib: u64, "MiB", Gpu, "plmkit_gpu_memory_size_bytes", false, "Device memory.";
    temperature_c: u32, "°C", Gpu, "plmkit_gpu_temperature_celsius", true, "Temperature of the chip.";
    power_w: f64, "W", Gpu, "plmkit_gpu_power_watts", true, "Power draw of the board.";
    power_limit_w: f64, "W", Gpu, "plmkit_gpu_power_limit_watts", false, "Power limit in force.";
    sm_clock_mhz: u32, "MHz", Gpu, "plmkit_gpu_sm_clock_hertz", true, "Clock of the streaming multiprocessors.";
    mem_clock_mhz: u32, "MHz", Gpu, "plmkit_gpu_memory_clock_hertz", true, "Clock of the device memory.";
    energy_j: f64, "J", Gpu, "plmkit_gpu_energy_joules_total", false, "Energy that the GPU has used since the driver was loaded.";
    ecc_corrected: u64, "", Gpu, "plmkit_gpu_ecc_corrected_errors_total", false, "Corrected memory errors since the driver was loaded.";
    ecc_uncorrected: u64, "", Gpu, "plmkit_gpu_ecc_uncorrected_errors_total", false, "Uncorrected memory errors since the driver was loaded.";
    mem_temperature_c: u32, "°C", Gpu, "plmkit_gpu_memory_temperature_celsius", false, "Temperature of the device memory.";
    temperature_limit_c: u32, "°C", Driver, "plmkit_gpu_temperature_limit_celsius", false, "Temperature of the chip above which the board lowers its clocks: the lower of its maximum for operation and its slowdown.";
    mem_temperature_limit_c: u32, "°C", Driver, "plmkit_gpu_memory_temperature_limit_celsius", false, "Temperature of the device memory above which the board lowers its clocks.";
    xid_errors: u64, "", Driver, "plmkit_gpu_xid_errors_total", false, "Xid errors since the driver was opened.";
    last_xid: u64, "", Driver, "plmkit_gpu_last_xid", false, "Number of the last Xid error; absent if there was none.";
}

impl Metric {
    /// Returns the metric of a column.
    pub fn of(column: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.column == column)
    }

    /// Returns a value in the base unit: a ratio, bytes or hertz.
    pub fn in_base(&self, value: f64) -> f64 {
        match self.unit {
            "%" => value / 100.0,
            "MiB" => value * 1_048_576.0,
            "MHz" => value * 1e6,
            _ => value,
        }
    }

    /// Returns its kind for Prometheus. A counter only grows until the driver is loaded again.
    pub fn kind(&self) -> &'static str {
        let is_counter = self.prometheus.ends_with("_total");
        if is_counter { "counter" } else { "gauge" }
    }
}

/// What the text of a column looks like.
type Form = &'static str;

const TIME: Form = "a time as 2026-01-31T12:00:00.000Z";
const NUMBER: Form = "a number as record writes it";
const PROCESSES: Form = "a list of JSON as [{\"pid\":4711,\"mem_used_mib\":5120,\"gpu_util\":88}]";

/// Reads the text of a column into a sample. The error is the form that was expected.
pub(crate) type ReadColumn = fn(&mut GpuSample, &str) -> Result<(), Form>;

/// Reads the text of a value. One that is unknown is empty.
fn read<T: FromStr>(field: &mut Option<T>, text: &str, form: Form) -> Result<(), Form> {
    let known = Some(text).filter(|text| !text.is_empty());
    *field = known.map(T::from_str).transpose().map_err(|_| form)?;
    Ok(())
}

impl GpuSample {
    /// Returns a row with a time and nothing else.
    pub fn at(timestamp: Timestamp) -> Self {
        Self {
            timestamp,
            ..Self::default()
        }
    }

    /// Whether it is of a MIG instance.
    pub fn is_instance(&self) -> bool {
        self.uuid.as_deref().is_some_and(is_instance)
    }

    /// Whether the GPU answered. One that is lost or hangs has names, and what the driver remembers of it.
    pub fn has_values(&self) -> bool {
        let answered =
            |metric: &Metric| metric.subject == Subject::Gpu && (metric.value)(self).is_some();
        self.throttle.is_some() || self.processes.is_some() || METRICS.iter().any(answered)
    }

    /// Returns the temperature above which the GPU is hot: close to the limit of its board, or a fixed one if the driver gives
    /// no limit.
    pub fn hot_above_c(&self) -> u32 {
        let near = |limit: u32| limit.saturating_sub(GPU_HOT_MARGIN_C);
        self.temperature_limit_c.map_or(GPU_HOT_ABOVE_C, near)
    }

    /// Returns the clock that both logs share: boot id and seconds since boot.
    pub fn boot_time(&self) -> Option<(&str, f64)> {
        self.boot_id.as_deref().zip(self.boot_s)
    }
}

/// Whether a UUID is that of a MIG instance.
pub fn is_instance(uuid: &str) -> bool {
    uuid.starts_with("MIG-")
}

/// Processes that compute on a GPU, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, SerializeDisplay)]
pub struct Processes(pub Vec<GpuProcess>);

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(&self.0).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

impl FromStr for Processes {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The process id that the driver reports. In a container it may be that of the host.
    pub pid: u32,
    /// Device memory that the process holds.
    pub mem_used_mib: Option<u64>,
    /// Share of the time in which its kernels ran.
    pub gpu_util: Option<u32>,
}
