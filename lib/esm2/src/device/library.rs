//! The part of libtorch that computes on GPUs, loaded when one is wanted: the program itself is linked against the part for CPUs.
#![allow(unsafe_code)] // loads a library

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::Symbol;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use plmkit_contract::{cause, path_text};

use super::DeviceError;

/// libtorch for CUDA. It registers its operations as it is loaded.
const LIBRARY: &str = "libtorch_cuda.so";
/// CUDA's runtime, which it brings along. The compiler of kernels lies beside that.
const RUNTIME: &str = "libcudart.so.13";
/// The part for CPUs, which is loaded with the program.
const OF_CPU: &str = "libtorch_cpu.so";
/// The version that this program is compiled for, major and minor.
pub(crate) const TORCH: (u8, u8) = (2, 11);
/// Where `make setup` and `make install` put libtorch.
const OF_MAKE: [&str; 2] = [".libtorch/torch/lib", "lib/plmkit/torch/lib"];

/// Loads it, once and for good, or says in the loader's words what is missing.
pub(crate) fn load() -> Result<(), String> {
    // SAFETY: its initialisers register operations with the libtorch that this program is linked against, which is how libtorch
    // loads it itself. Loading it again does nothing.
    match unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => std::mem::forget(library),
        Err(error) => return Err(cause(&error)),
    }
    // Where it is in no such folder, kernels of plmkit's own look for it on the library path, and say what is missing.
    folders_of(RUNTIME)
        .iter()
        .any(|folder| plmkit_gpu::load_nvrtc_from(folder).is_ok());
    Ok(())
}

/// What installs it where it was not found.
pub(crate) fn remedy() -> String {
    let folder = folder_of_cpu();
    if OF_MAKE.iter().any(|made| folder.ends_with(made)) {
        "'make setup GPU=1 install' installs what is missing".to_owned()
    } else {
        let folder = path_text(&folder);
        format!("expected torch 2.11.0 with its CUDA libraries in {folder}, as pip installs it")
    }
}

/// Where the part for CPUs lies.
fn folder_of_cpu() -> PathBuf {
    let found = folders_of(OF_CPU).into_iter().next().unwrap_or_default();
    // Found from the folder of the program, it is written so: `bin/../lib`.
    found.canonicalize().unwrap_or(found)
}

/// That the libtorch of this process is the one that the program is compiled for: beside a program that pip installs there may lie
/// another, and the loader misses only functions that have gone.
pub(crate) fn check_version() -> Result<(), DeviceError> {
    let library = loaded(OF_CPU);
    // SAFETY: the signature is that of torch's stable C interface, in which the bytes of the number begin with the version's.
    let version = library.as_ref().and_then(|library| unsafe {
        let get: Symbol<unsafe extern "C" fn() -> u64> =
            library.get(b"aoti_torch_abi_version\0").ok()?;
        Some(get().to_be_bytes())
    });
    match version {
        Some([major, minor, ..]) if (major, minor) == TORCH => Ok(()),
        found => Err(DeviceError::OtherTorch {
            version: found.map_or("an older one".to_owned(), |[major, minor, patch, ..]| {
                format!("{major}.{minor}.{patch}")
            }),
            folder: path_text(&folder_of_cpu()),
        }),
    }
}

/// The version of CUDA that it is built with, major and minor, once it is loaded.
pub(crate) fn cuda_version() -> Option<(c_int, c_int)> {
    let library = loaded(RUNTIME)?;
    // SAFETY: the signature is that of cuda_runtime_api.h; no driver is needed.
    let get: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
        unsafe { library.get(b"cudaRuntimeGetVersion\0") }.ok()?;
    let mut version = 0;
    let status = unsafe { get(&raw mut version) };
    (status == 0).then_some((version / 1000, version % 1000 / 10))
}

/// A library that this process has loaded, by its soname.
fn loaded(soname: &str) -> Option<libloading::Library> {
    // SAFETY: nothing is loaded that is not yet.
    let library = unsafe { Library::open(Some(soname), RTLD_NOW | libc::RTLD_NOLOAD) };
    library.ok().map(Into::into)
}

/// The folder in which the loader found a library that is loaded, and the one of the file itself where a link was found.
fn folders_of(soname: &str) -> Vec<PathBuf> {
    let Some(library) = loaded(soname) else {
        return Vec::new();
    };
    let library: Library = library.into();
    let handle = library.into_raw();
    let mut origin = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: the handle was opened above, the loader writes a path and the 0 after it, and the handle is not used after it is closed.
    let found = unsafe {
        let status = libc::dlinfo(handle, libc::RTLD_DI_ORIGIN, origin.as_mut_ptr().cast());
        drop(Library::from_raw(handle));
        (status == 0).then(|| CStr::from_ptr(origin.as_ptr()))
    };
    let Some(found) = found else {
        return Vec::new();
    };
    let folder = Path::new(OsStr::from_bytes(found.to_bytes())).to_owned();
    let file = folder.join(soname).canonicalize();
    let behind = file.ok().and_then(|file| file.parent().map(Path::to_owned));
    let behind = behind.filter(|behind| *behind != folder);
    [folder].into_iter().chain(behind).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_folder_of_a_loaded_library_is_found_and_the_one_behind_a_link() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (links, files) = (root.join("my env/lib"), root.join("files"));
        fs::create_dir_all(&links).unwrap();
        fs::create_dir_all(&files).unwrap();
        let file = files.join("libplmkit-runtime.so.13.0.96");
        let soname = "libplmkit-runtime.so.13";
        let compiled = Command::new("cc")
            .args(["-shared", "-x", "c", "/dev/null", "-o"])
            .arg(&file)
            .arg(format!("-Wl,-soname,{soname}"))
            .status();
        assert!(compiled.unwrap().success());
        assert!(folders_of(soname).is_empty());

        symlink(&file, links.join(soname)).unwrap();
        // SAFETY: there is nothing in it.
        let library = unsafe { Library::open(Some(links.join(soname)), RTLD_NOW) }.unwrap();
        assert_eq!(folders_of(soname), [links, files]);
        drop(library);
        assert!(!folders_of(OF_CPU).is_empty());
    }
}
