//! GPUs through NVML, NVIDIA's management library, loaded at run time: no driver is needed to build or to start.

mod activity;
mod gpu;
mod processes;
mod unavailable;

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use plmkit_contract::cause;

use gpu::Gpu;
use plmkit_logs::GpuSample;
use unavailable::Unavailable;

/// The name that the driver installs; without the `.1` it exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// The GPUs that the driver sees.
pub(crate) struct Gpus {
    gpus: Vec<Gpu>,
    unavailable: Unavailable,
}

impl Gpus {
    /// Loads NVML: the driver's own, or the one at `library`. The error is the reason in a few words.
    pub(crate) fn open(library: Option<&Path>) -> Result<Self, String> {
        let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
        let nvml = Nvml::builder()
            .lib_path(path)
            .init()
            .map_err(|error| cause(&error))?;
        let count = nvml.device_count().map_err(|error| cause(&error))?;
        if count == 0 {
            return Err("the driver sees no GPU".to_owned());
        }
        // Readings of activity borrow it from one moment to the next: it stays until the process ends.
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let mut unavailable = Unavailable::default();
        let gpus = (0..count).map(|index| Gpu::new(nvml, index, &mut unavailable));
        Ok(Self {
            gpus: gpus.collect(),
            unavailable,
        })
    }

    /// A row for each GPU; the time and the host's columns are those of `moment`.
    pub(crate) fn read(&mut self, moment: &GpuSample) -> Vec<GpuSample> {
        self.gpus
            .iter_mut()
            .map(|gpu| gpu.read(moment, &mut self.unavailable))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason_and_no_panic() {
        let reason = Gpus::open(Some(Path::new("/nonexistent/libnvidia-ml.so")))
            .err()
            .unwrap();
        let expected = "/nonexistent/libnvidia-ml.so: cannot open shared object file";
        assert!(reason.starts_with(expected), "{reason}");
    }
}
