//! The processes on a GPU.

use std::collections::HashMap;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use plmkit_logs::{GpuProcess, Processes};

use super::MIB;

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
/// a sample is unknown.
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
