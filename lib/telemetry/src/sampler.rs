//! Samples of all GPUs and the host.

use std::path::PathBuf;
use std::time::Duration;

use plmkit_logs::{GpuSample, Timestamp, boot_id, boot_seconds};

use crate::host::Host;
use crate::nvml::{Driver, DriverVersions};
use crate::process_tree::ProcessTree;

/// Time between two searches for a missing driver: a service may start before the driver.
pub const DRIVER_RETRY: Duration = Duration::from_mins(1);

/// What to sample.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Path of NVML, the driver's management library; `None` for the installed one.
    pub nvml: Option<PathBuf>,
    /// The longest time between two searches for a missing driver: [`DRIVER_RETRY`].
    pub driver_retry: Duration,
    /// A path on the file system whose free space is sampled.
    pub disk: Option<PathBuf>,
    /// The recorded process. GPU processes that do not descend from it are foreign.
    pub command: Option<u32>,
}

/// Takes samples: a row for each GPU and MIG instance, or one row for the host if no GPU was ever seen.
pub struct Sampler {
    driver: Driver,
    host: Host,
    command: Option<ProcessTree>,
    boot_id: Option<String>,
}

impl Sampler {
    /// Loads NVML. Logs why there is no GPU.
    pub fn open(sources: &Sources) -> Self {
        Self {
            driver: Driver::open(sources.nvml.as_deref(), sources.driver_retry),
            host: Host::new(sources.disk.as_deref()),
            command: sources.command.map(ProcessTree::new),
            boot_id: boot_id(),
        }
    }

    /// Returns the versions of the driver.
    pub fn versions(&self) -> &DriverVersions {
        &self.driver.versions
    }

    /// Takes the samples of this moment, at least one.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        moment.boot_id.clone_from(&self.boot_id);
        moment.boot_s = Some(boot_seconds());
        self.host.read(&mut moment);
        let mut samples = self.driver.read(&moment);
        if let Some(command) = &mut self.command {
            for sample in &mut samples {
                let processes = sample.processes.as_ref();
                sample.foreign_processes =
                    processes.and_then(|processes| command.foreign(processes));
            }
        }
        if samples.is_empty() {
            samples.push(moment);
        }
        samples
    }
}
