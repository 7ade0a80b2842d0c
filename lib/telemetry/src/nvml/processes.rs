//! The processes on a GPU.

use std::collections::HashMap;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};
use plmkit_logs::{GpuProcess, Processes};

use super::MIB;

/// Drivers of this version may write longer records of processes than their interface says. nvml-wrapper has room for five
/// records more than there are: enough for so many longer ones.
const LONG_RECORDS: &str = "535.";
const MOST_LONG_RECORDS: u32 = 7;

/// Reads the records of the processes. Of a driver with long records, many are [`NvmlError::NotSupported`].
pub(super) fn read(nvml: &Nvml, device: &Device) -> Result<Vec<ProcessInfo>, NvmlError> {
    let version = nvml.sys_driver_version();
    let has_long_records = version.is_ok_and(|version| version.starts_with(LONG_RECORDS));
    if has_long_records && device.running_compute_processes_count()? > MOST_LONG_RECORDS {
        return Err(NvmlError::NotSupported);
    }
    device.running_compute_processes()
}

/// The kernel's greatest process id.
const MAX_PID: u32 = 1 << 22;

/// Reads the driver's buffer of utilisation samples by process.
#[derive(Default)]
pub(super) struct Utilization {
    /// The driver's time of the last sample that was read, in microseconds.
    last_us: u64,
}

impl Utilization {
    /// Returns the latest utilisation of each process since the previous reading, in percent.
    pub(super) fn read(&mut self, device: &Device) -> Result<HashMap<u32, u32>, NvmlError> {
        match device.process_utilization_stats(self.last_us) {
            Ok(samples) => Ok(self.latest(samples)),
            // The driver's answer for a buffer without new samples.
            Err(NvmlError::NotFound) => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }

    fn latest(&mut self, mut samples: Vec<ProcessUtilizationSample>) -> HashMap<u32, u32> {
        samples.sort_by_key(|sample| sample.timestamp);
        if let Some(last) = samples.last() {
            self.last_us = self.last_us.max(last.timestamp);
        }
        samples
            .iter()
            .map(|sample| (sample.pid, sample.sm_util.min(100)))
            .collect()
    }
}

/// Returns the processes with their memory and utilisation. As in `nvidia-smi pmon`, the utilisation of a process without
/// a sample is unknown. So is memory that the driver does not give, or more than the GPU has. A process with an impossible
/// id is left out. The second value says so.
pub(super) fn processes(
    infos: &[ProcessInfo],
    utilization: &HashMap<u32, u32>,
    total_mib: Option<u64>,
) -> (Processes, Option<&'static str>) {
    let mut wrong = None;
    let mut process = |info: &ProcessInfo| {
        if !(1..=MAX_PID).contains(&info.pid) {
            wrong = Some("the driver gives a process with an impossible id, which is left out");
            return None;
        }
        let mem_used_mib = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
            UsedGpuMemory::Unavailable => None,
        };
        let mem_used_mib = mem_used_mib.filter(|&mib| total_mib.is_none_or(|total| mib <= total));
        if mem_used_mib.is_none() {
            wrong.get_or_insert("the driver gives no possible memory of a process");
        }
        Some(GpuProcess {
            pid: info.pid,
            mem_used_mib,
            gpu_util: utilization.get(&info.pid).copied(),
        })
    };
    let processes = infos.iter().filter_map(&mut process).collect();
    (Processes(processes), wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_ids_and_memory_are_left_out_and_told() {
        let info = |pid, used| ProcessInfo {
            pid,
            used_gpu_memory: used,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let used = |mib: u64| UsedGpuMemory::Used(mib * MIB);
        let found = |info| {
            let (found, wrong) = processes(&[info], &HashMap::from([(7, 88)]), Some(80));
            let found = found.0.first().copied();
            let found = found.map(|found| (found.pid, found.mem_used_mib, found.gpu_util));
            (found, wrong.is_some())
        };
        for (info, expected) in [
            (info(7, used(80)), (Some((7, Some(80), Some(88))), false)),
            (info(7, used(81)), (Some((7, None, Some(88))), true)),
            (
                info(7, UsedGpuMemory::Used(u64::MAX)),
                (Some((7, None, Some(88))), true),
            ),
            (
                info(7, UsedGpuMemory::Unavailable),
                (Some((7, None, Some(88))), true),
            ),
            (
                info(MAX_PID, used(0)),
                (Some((MAX_PID, Some(0), None)), false),
            ),
            (info(MAX_PID + 1, used(0)), (None, true)),
            (info(0, used(5)), (None, true)),
        ] {
            assert_eq!(found(info), expected);
        }
    }

    #[test]
    fn the_latest_sample_of_a_process_counts_in_any_order() {
        let samples = [(1, 20, 90), (1, 10, 5), (2, 15, 7)];
        let samples = samples.map(|(pid, timestamp, sm_util)| ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        });
        let mut utilization = Utilization::default();
        let latest = utilization.latest(samples.to_vec());
        assert_eq!(latest, HashMap::from([(1, 90), (2, 7)]));
        assert!(utilization.latest(Vec::new()).is_empty());
        assert_eq!(utilization.last_us, 20);
    }
}
