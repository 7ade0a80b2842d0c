//! Samples of all GPUs and the host.

use std::path::Path;

use plmkit_logs::{GpuSample, Timestamp, boot_id, boot_seconds};

use crate::host::Host;
use crate::nvml::{Driver, DriverVersions};

/// Takes samples: a row for each GPU and MIG instance, or one row for the host if no GPU was ever seen.
pub struct Sampler {
    driver: Driver,
    host: Host,
    boot_id: Option<String>,
}

impl Sampler {
    /// Loads NVML, the driver's management library: that at a path, or the installed one. Logs why there is no GPU.
    pub fn open(nvml: Option<&Path>) -> Self {
        Self {
            driver: Driver::open(nvml),
            host: Host::default(),
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
        if samples.is_empty() {
            samples.push(moment);
        }
        samples
    }
}
