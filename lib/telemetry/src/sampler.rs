//! All GPUs and the host at one moment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::family::Family;
use crate::nvml::Gpus;
use crate::{GpuSample, Timestamp, host::Host};

/// How often a driver that was not there is looked for again: a service of the node may be started before it.
pub const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// What to sample.
#[derive(Clone, Debug)]
pub struct Sources {
    /// NVML, the driver's management library; `None`: the one that is installed.
    pub nvml: Option<PathBuf>,
    /// How often it is looked for while it is not there: [`LOOK_AGAIN`].
    pub look_again: Duration,
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
    look_again: Duration,
    looked: Instant,
    host: Host,
    family: Option<Family>,
    start: Instant,
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
            look_again: sources.look_again,
            looked: Instant::now(),
            host: Host::new(sources.disk.as_deref()),
            family: sources.command.map(Family::of),
            start: Instant::now(),
        }
    }

    /// The rows of this moment, at least one.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        moment.elapsed_s = Some(self.start.elapsed().as_millis() as f64 / 1000.0);
        self.host.read(&mut moment);
        if self.gpus.is_none() && self.looked.elapsed() >= self.look_again {
            self.gpus = Gpus::open(self.nvml.as_deref())
                .inspect(|_| tracing::info!("the driver is there by now"))
                .ok();
            self.looked = Instant::now();
        }
        let Some(gpus) = &mut self.gpus else {
            return vec![moment];
        };
        let mut samples = gpus.read(&moment);
        if let Some(family) = &mut self.family {
            for sample in &mut samples {
                sample.foreign_processes = sample
                    .processes
                    .as_ref()
                    .and_then(|processes| family.foreign(processes));
            }
        }
        samples
    }
}
