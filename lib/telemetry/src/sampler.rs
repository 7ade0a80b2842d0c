//! All GPUs and the host at one moment.

use crate::nvml::Gpus;
use crate::{GpuSample, Timestamp, host::Host};

/// Takes samples: a row for each GPU, or one row for the host where there is no GPU.
pub struct Sampler {
    gpus: Option<Gpus>,
    host: Host,
}

impl Sampler {
    /// Looks for a driver and says so where there is none.
    pub fn open() -> Self {
        let gpus = Gpus::open(None)
            .inspect_err(|reason| tracing::info!("no GPU to be seen, only the host: {reason}"))
            .ok();
        Self {
            gpus,
            host: Host::default(),
        }
    }

    /// The rows of this moment, at least one.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        self.host.read(&mut moment);
        match &mut self.gpus {
            Some(gpus) => gpus.read(&moment),
            None => vec![moment],
        }
    }
}
