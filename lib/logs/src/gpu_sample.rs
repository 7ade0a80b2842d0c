//! What is seen of a GPU and its host at one moment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// One row of a GPU sample log: a GPU, and the host beside it, at one moment.
///
/// A value that the driver or the system does not give is `None`, never 0. On a machine without a GPU a row
/// holds the host only. Utilisations are percentages, 0 to 100, over the time since the sample before, or over
/// the driver's own window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// When, by the time of day.
    pub timestamp: Timestamp,
    /// The [boot](crate::boot_id) of the machine, for `boot_s`.
    pub boot_id: Option<String>,
    /// When, in [seconds since boot](crate::boot_seconds).
    pub boot_s: Option<f64>,
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// The GPU's lasting name: `GPU-…`.
    pub uuid: Option<String>,
    /// The product.
    pub name: Option<String>,
    /// Share of the time in which a kernel ran.
    pub gpu_util: Option<u32>,
    /// Share of the time in which device memory was read or written.
    pub mem_util: Option<u32>,
    /// Device memory in use.
    pub mem_used_mib: Option<u64>,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// Temperature of the chip.
    pub temperature_c: Option<u32>,
    /// Power draw of the board.
    pub power_w: Option<f64>,
    /// Power limit in force.
    pub power_limit_w: Option<f64>,
    /// Clock of the streaming multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// What holds the clocks down.
    pub throttle: Option<Throttle>,
    /// Processes that compute on the GPU.
    pub processes: Option<Processes>,
    /// Those of them that are not the recorded command's: known where a command is recorded.
    pub foreign_processes: Option<u32>,
    /// Clock of the device memory.
    pub mem_clock_mhz: Option<u32>,
    /// Energy that the GPU has used since the driver was loaded.
    pub energy_j: Option<f64>,
    /// Read by the GPU over `PCIe`.
    pub pcie_rx_mib_s: Option<f64>,
    /// Written by the GPU over `PCIe`.
    pub pcie_tx_mib_s: Option<f64>,
    /// Memory errors that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not, since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Share of the time, over all streaming multiprocessors, in which one had work.
    pub sm_active: Option<f64>,
    /// Share of the time in which the tensor cores computed.
    pub tensor_active: Option<f64>,
    /// Share of the time in which data went to or from device memory.
    pub dram_active: Option<f64>,
    /// Share of all CPUs' time that was not idle.
    pub host_cpu_util: Option<f64>,
    /// Memory that no new program could have.
    pub host_mem_used_mib: Option<u64>,
    /// Memory.
    pub host_mem_total_mib: Option<u64>,
    /// Read from all disks.
    pub host_disk_read_mib_s: Option<f64>,
    /// Written to all disks.
    pub host_disk_write_mib_s: Option<f64>,
    /// What is left for this user on the file system of the log.
    pub host_disk_free_mib: Option<u64>,
}

impl GpuSample {
    /// A row that says when it was and nothing else.
    pub fn at(timestamp: Timestamp) -> Self {
        Self {
            timestamp,
            ..Self::default()
        }
    }

    /// The clock that both logs share, where the row has it: boot id and seconds since boot.
    pub fn boot_time(&self) -> Option<(&str, f64)> {
        self.boot_id.as_deref().zip(self.boot_s)
    }
}

/// What stands for an empty list, since an empty value is one that is not known.
const NOTHING: &str = "none";

/// What holds the clocks down, by the driver's names: `sw_power_cap+hw_slowdown`, or `none`.
///
/// An idle GPU clocks down as well; that is no throttling and is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Throttle(pub Vec<String>);

impl Throttle {
    /// Whether anything holds the clocks down.
    pub fn active(&self) -> bool {
        !self.0.is_empty()
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, "+")
    }
}

impl From<Throttle> for String {
    fn from(throttle: Throttle) -> Self {
        throttle.to_string()
    }
}

impl From<String> for Throttle {
    fn from(text: String) -> Self {
        let mut reasons: Vec<String> = Vec::new();
        for reason in items(&text, '+').filter(|reason| !reason.is_empty()) {
            // Samples are counted by reason: one that is there twice is one.
            if !reasons.iter().any(|known| known == reason) {
                reasons.push(reason.to_owned());
            }
        }
        Self(reasons)
    }
}

/// Processes that compute on a GPU, as `PID:MIB:PERCENT`: `4711:5120:97;4712::`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Processes(pub Vec<GpuProcess>);

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its process id, as the driver sees it: inside a container it may be another.
    pub pid: u32,
    /// Device memory that it holds.
    pub mem_used_mib: Option<u64>,
    /// Share of the time in which its kernels ran.
    pub gpu_util: Option<u32>,
}

impl fmt::Display for GpuProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.pid)?;
        self.mem_used_mib.map_or(Ok(()), |mib| write!(f, "{mib}"))?;
        f.write_str(":")?;
        self.gpu_util
            .map_or(Ok(()), |percent| write!(f, "{percent}"))
    }
}

impl FromStr for GpuProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let mut fields = text.split(':');
            let process = Self {
                pid: fields.next()?.parse().ok()?,
                mem_used_mib: optional(fields.next()?).ok()?,
                // Older logs end here.
                gpu_util: optional(fields.next().unwrap_or_default()).ok()?,
            };
            fields.next().is_none().then_some(process)
        };
        parsed().ok_or_else(|| format!("expected PID:MIB:PERCENT, found '{}'", text.escape_debug()))
    }
}

fn optional<T: FromStr>(text: &str) -> Result<Option<T>, T::Err> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some)
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, ";")
    }
}

impl From<Processes> for String {
    fn from(processes: Processes) -> Self {
        processes.to_string()
    }
}

impl TryFrom<String> for Processes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        items(&text, ';')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    list: &[T],
    separator: &str,
) -> fmt::Result {
    let Some((first, rest)) = list.split_first() else {
        return f.write_str(NOTHING);
    };
    write!(f, "{first}")?;
    rest.iter()
        .try_for_each(|item| write!(f, "{separator}{item}"))
}

fn items(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).filter(move |_| text != NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_as_they_were_written() {
        let process = |pid, mem_used_mib, gpu_util| GpuProcess {
            pid,
            mem_used_mib,
            gpu_util,
        };
        for (list, text) in [
            (Processes(vec![]), "none"),
            (Processes(vec![process(1, Some(0), Some(0))]), "1:0:0"),
            (
                Processes(vec![
                    process(4711, Some(5120), Some(97)),
                    process(4712, None, None),
                ]),
                "4711:5120:97;4712::",
            ),
        ] {
            assert_eq!(list.to_string(), text);
            assert_eq!(Processes::try_from(text.to_owned()), Ok(list));
        }
        for (list, text) in [
            (Throttle(vec![]), "none"),
            (
                Throttle(vec!["sw_power_cap".to_owned(), "sync_boost".to_owned()]),
                "sw_power_cap+sync_boost",
            ),
        ] {
            assert_eq!(list.to_string(), text);
            assert_eq!(Throttle::from(text.to_owned()), list);
        }
    }

    #[test]
    fn a_reason_that_is_empty_or_there_again_is_none() {
        for (text, reasons) in [("+++", &[][..]), ("", &[]), ("a++a+b+", &["a", "b"])] {
            assert_eq!(Throttle::from(text.to_owned()).0, reasons, "{text}");
        }
    }

    #[test]
    fn what_is_no_process_is_refused() {
        for text in ["", "4711", "x:1", "1:x", "1:2;"] {
            assert!(Processes::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
