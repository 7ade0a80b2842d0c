//! The processes on a GPU.

use std::collections::HashMap;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

use super::MIB;
use plmkit_logs::{GpuProcess, Processes};

/// How busy each process kept a GPU, from the driver's own buffer of samples.
#[derive(Default)]
pub(super) struct Utilization {
    /// The driver's time, in microseconds, of the last sample that was read.
    seen_until: u64,
}

impl Utilization {
    /// The last known utilisation of each process, percent, since the reading before.
    pub(super) fn read(&mut self, device: &Device) -> Result<HashMap<u32, u32>, NvmlError> {
        match device.process_utilization_stats(self.seen_until) {
            Ok(samples) => Ok(self.latest(samples)),
            // The driver's word for a buffer without new samples.
            Err(NvmlError::NotFound) => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }

    fn latest(&mut self, mut samples: Vec<ProcessUtilizationSample>) -> HashMap<u32, u32> {
        samples.sort_by_key(|sample| sample.timestamp);
        if let Some(last) = samples.last() {
            self.seen_until = self.seen_until.max(last.timestamp);
        }
        samples
            .iter()
            .map(|sample| (sample.pid, sample.sm_util.min(100)))
            .collect()
    }
}

/// Processes with their memory and their utilisation; of one that has no sample it is not known, as in `nvidia-smi pmon`.
pub(super) fn processes(infos: &[ProcessInfo], utilization: &HashMap<u32, u32>) -> Processes {
    let process = |info: &ProcessInfo| GpuProcess {
        pid: info.pid,
        mem_used_mib: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
            UsedGpuMemory::Unavailable => None,
        },
        gpu_util: utilization.get(&info.pid).copied(),
    };
    Processes(infos.iter().map(process).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    #[test]
    fn the_latest_sample_of_a_process_counts_in_whatever_order_they_come() {
        let mut utilization = Utilization::default();
        let latest =
            utilization.latest(vec![sample(1, 20, 90), sample(1, 10, 5), sample(2, 15, 7)]);
        assert_eq!(latest, HashMap::from([(1, 90), (2, 7)]));
        assert_eq!(utilization.seen_until, 20);
        assert!(utilization.latest(Vec::new()).is_empty());
        assert_eq!(utilization.seen_until, 20);
    }

    #[test]
    fn work_that_is_not_known_is_not_none() {
        let info = ProcessInfo {
            pid: 7,
            used_gpu_memory: UsedGpuMemory::Unavailable,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let of = |known: &[(u32, u32)]| {
            let known = known.iter().copied().collect();
            processes(std::slice::from_ref(&info), &known).to_string()
        };
        assert_eq!(of(&[]), "7::");
        assert_eq!(of(&[(8, 5)]), "7::");
        assert_eq!(of(&[(7, 33)]), "7::33");
    }
}
