//! All GPUs and the host at one moment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plmkit_logs::{GpuSample, Timestamp, boot_id, boot_seconds};

use crate::host::Host;
use crate::nvml::Gpus;
use crate::process_tree::ProcessTree;

/// How often a driver that was not there is looked for again: a service of the node may be started before it.
pub const DRIVER_RETRY: Duration = Duration::from_mins(1);

/// What to sample.
#[derive(Clone, Debug)]
pub struct Sources {
    /// NVML, the driver's management library; `None`: the one that is installed.
    pub nvml: Option<PathBuf>,
    /// How often it is looked for while it is not there: [`DRIVER_RETRY`].
    pub driver_retry: Duration,
    /// A path on the file system whose free space is watched.
    pub disk: Option<PathBuf>,
    /// The process that is recorded: GPU processes that are neither it nor descend from it are foreign.
    pub command: Option<u32>,
}

/// Takes samples: a row for each GPU, or one row for the host where there is no GPU.
pub struct Sampler {
    gpus: Option<Gpus>,
    /// NVML, and when it was looked for.
    nvml: Option<PathBuf>,
    driver_retry: Duration,
    looked: Instant,
    host: Host,
    command: Option<ProcessTree>,
    boot_id: Option<String>,
}

impl Sampler {
    /// Looks for a driver and says so where there is none.
    pub fn open(sources: &Sources) -> Self {
        let gpus = Gpus::open(sources.nvml.as_deref())
            .inspect_err(|reason| tracing::info!("no GPU to be seen, only the host: {reason}"))
            .ok();
        Self {
            gpus,
            nvml: sources.nvml.clone(),
            driver_retry: sources.driver_retry,
            looked: Instant::now(),
            host: Host::new(sources.disk.as_deref()),
            command: sources.command.map(ProcessTree::new),
            boot_id: boot_id(),
        }
    }

    /// The rows of this moment, at least one.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        moment.boot_id.clone_from(&self.boot_id);
        moment.boot_s = Some(boot_seconds());
        self.host.read(&mut moment);
        if self.gpus.is_none() && self.looked.elapsed() >= self.driver_retry {
            self.gpus = Gpus::open(self.nvml.as_deref())
                .inspect(|_| tracing::info!("the driver is there by now"))
                .ok();
            self.looked = Instant::now();
        }
        let Some(gpus) = &mut self.gpus else {
            return vec![moment];
        };
        let mut samples = gpus.read(&moment);
        if let Some(command) = &mut self.command {
            for sample in &mut samples {
                sample.foreign_processes = sample
                    .processes
                    .as_ref()
                    .and_then(|processes| command.foreign(processes));
            }
        }
        samples
    }
}
