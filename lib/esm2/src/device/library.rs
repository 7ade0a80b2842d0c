//! The part of libtorch that computes on GPUs, loaded when one is wanted: the program itself is linked against the part for CPUs.
#![allow(unsafe_code)] // loads a library

use std::fs;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// libtorch for CUDA. It registers its operations as it is loaded.
const LIBRARY: &str = "libtorch_cuda.so";
/// CUDA's runtime, which it brings along. The compiler of kernels lies beside that.
const RUNTIME: &str = "libcudart.so.13";
/// What this process has loaded.
const MAPS: &str = "/proc/self/maps";

/// Loads it, once and for good, or says in the loader's words what is missing.
pub(crate) fn load() -> Result<(), String> {
    // SAFETY: its initialisers register operations with the libtorch that this program is linked against, which is how libtorch
    // loads it itself. Loading it again does nothing.
    match unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => std::mem::forget(library),
        Err(error) => return Err(error.to_string()),
    }
    // Where it is not found, kernels of plmkit's own look for it on the library path, and say what is missing.
    if let Some(folder) = folder_of(&fs::read_to_string(MAPS).unwrap_or_default(), RUNTIME) {
        let _ = plmkit_gpu::load_nvrtc_from(&folder);
    }
    Ok(())
}

/// The folder of a library that is loaded, by the memory maps of this process.
fn folder_of(maps: &str, library: &str) -> Option<PathBuf> {
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]));
    let mut found = paths.map(Path::new).filter(|path| path.ends_with(library));
    found.next()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_loaded_library_is_found() {
        let maps = "7f00-7f01 r-xp 00000000 fe:00 11  /usr/lib/libm.so.6\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \n\
                    7f04-7f05 r--p 00000000 fe:00 12  /opt/my env/nvidia/cu13/lib/libcudart.so.13\n";
        let folder = Path::new("/opt/my env/nvidia/cu13/lib");
        assert_eq!(folder_of(maps, RUNTIME).as_deref(), Some(folder));
        assert_eq!(folder_of(maps, "libcudart.so.12"), None);
        let own = fs::read_to_string(MAPS).expect("maps");
        assert!(folder_of(&own, "libtorch_cpu.so").is_some());
    }
}
