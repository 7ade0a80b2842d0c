//! GPUs through NVML, NVIDIA's management library. NVML is loaded at run time: neither the build nor the start needs a
//! driver.

mod activity;
mod gpu;
mod processes;

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use plmkit_contract::cause;

pub(crate) use gpu::Gpu;

/// The name that the driver installs. The name without `.1` exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// Loads NVML, from `library` if given, and returns all GPUs, at least one. The error is the reason in a few words.
pub(crate) fn open_gpus(library: Option<&Path>) -> Result<Vec<Gpu>, String> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = Nvml::builder()
        .lib_path(path)
        .init()
        .map_err(|error| cause(&error))?;
    let count = nvml.device_count().map_err(|error| cause(&error))?;
    if count == 0 {
        return Err("the driver sees no GPU".to_owned());
    }
    // Leaked: NVML is never unloaded after it has reported a GPU, and samples of activity borrow it.
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    Ok((0..count).map(|index| Gpu::new(nvml, index)).collect())
}
