//! Samples of all GPUs and the host.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plmkit_logs::{GpuSample, Timestamp, boot_id, boot_seconds};

use crate::host::Host;
use crate::nvml::{Gpu, open_gpus};
use crate::process_tree::ProcessTree;

/// Time between two searches for a missing driver: a service may start before the driver.
pub const DRIVER_RETRY: Duration = Duration::from_mins(1);

/// What to sample.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Path of NVML, the driver's management library; `None` for the installed one.
    pub nvml: Option<PathBuf>,
    /// Time between two searches for a missing driver: [`DRIVER_RETRY`].
    pub driver_retry: Duration,
    /// A path on the file system whose free space is sampled.
    pub disk: Option<PathBuf>,
    /// The recorded process. GPU processes that do not descend from it are foreign.
    pub command: Option<u32>,
}

/// Takes samples: a row for each GPU, or one row for the host if there is no GPU.
pub struct Sampler {
    /// The GPUs; empty while there is no driver.
    gpus: Vec<Gpu>,
    nvml: Option<PathBuf>,
    driver_retry: Duration,
    last_search: Instant,
    host: Host,
    command: Option<ProcessTree>,
    boot_id: Option<String>,
}

impl Sampler {
    /// Loads NVML. Logs why there is no GPU.
    pub fn open(sources: &Sources) -> Self {
        let gpus = open_gpus(sources.nvml.as_deref())
            .inspect_err(|reason| tracing::info!("no GPU to be seen, only the host: {reason}"));
        Self {
            gpus: gpus.unwrap_or_default(),
            nvml: sources.nvml.clone(),
            driver_retry: sources.driver_retry,
            last_search: Instant::now(),
            host: Host::new(sources.disk.as_deref()),
            command: sources.command.map(ProcessTree::new),
            boot_id: boot_id(),
        }
    }

    /// Takes the samples of this moment, at least one.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        moment.boot_id.clone_from(&self.boot_id);
        moment.boot_s = Some(boot_seconds());
        self.host.read(&mut moment);
        if self.gpus.is_empty() && self.last_search.elapsed() >= self.driver_retry {
            self.gpus = open_gpus(self.nvml.as_deref())
                .inspect(|_| tracing::info!("the driver is there by now"))
                .unwrap_or_default();
            self.last_search = Instant::now();
        }
        let gpus = self.gpus.iter_mut();
        let mut samples: Vec<GpuSample> = gpus.map(|gpu| gpu.read(&moment)).collect();
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
