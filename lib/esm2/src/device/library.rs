//! The part of libtorch that computes on GPUs, loaded when one is wanted: the program itself is linked against the part for CPUs.
#![allow(unsafe_code)] // loads a library

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// libtorch for CUDA. It registers its operations as it is loaded.
const LIBRARY: &str = "libtorch_cuda.so";

/// Loads it, once and for good, or says in the loader's words what is missing.
pub(crate) fn load() -> Result<(), String> {
    // SAFETY: its initialisers register operations with the libtorch that this program is linked against, which is how libtorch
    // loads it itself. Loading it again does nothing.
    match unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => {
            std::mem::forget(library);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}
