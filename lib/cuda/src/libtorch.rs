//! Loads libtorch's part for GPUs when it is needed. This library is linked only against the part for CPUs.
#![allow(unsafe_code)] // loads a library

use std::ffi::{CStr, OsStr, c_char};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::Symbol;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use plmkit_esm2::cuda::OpeningGpu;
use plmkit_esm2::{EsmError, ON_THE_CPU};
use plmkit_kit::{cause, path_text};

/// libtorch for CUDA. Loading it registers its operations.
const LIBRARY: &str = "libtorch_cuda.so";
/// CUDA's runtime, which libtorch for CUDA loads. NVRTC is in the same folder.
const RUNTIME: &str = "libcudart.so.13";
/// libtorch for CPUs, which is loaded with the program.
const CPU_LIBRARY: &str = "libtorch_cpu.so";
/// The version that this library is compiled for, major and minor.
const TORCH: (u8, u8) = (2, 11);
/// The folders in which `make setup` and `make install` put libtorch.
const MAKE_FOLDERS: [&str; 2] = [".libtorch/torch/lib", "lib/plmkit/torch/lib"];

/// Sets the number of libtorch's threads. libtorch starts all at once, and ends the process if it cannot.
pub(crate) fn set_threads(threads: NonZeroUsize) {
    let threads = i32::try_from(threads.get()).unwrap_or(i32::MAX);
    if tch::get_num_threads() != threads {
        tch::set_num_threads(threads);
    }
}

/// Checks libtorch and, for a GPU, loads its part for CUDA.
pub(crate) fn prepare(gpu: Option<&OpeningGpu>) -> Result<(), EsmError> {
    check_version()?;
    let Some(OpeningGpu { device, name, .. }) = gpu else {
        return Ok(());
    };
    let device = format!("device '{device}', {name}");
    if let Err(found) = load() {
        return Err(EsmError::unavailable(format!(
            "{device}, needs libtorch for CUDA, which cannot be loaded: {found}; {}; {ON_THE_CPU}",
            remedy()
        )));
    }
    Ok(())
}

/// Loads libtorch for CUDA for the rest of the process. The error has the loader's words.
fn load() -> Result<(), String> {
    // SAFETY: its initialisers register operations with the libtorch of this process, as when libtorch loads it itself. Loading
    // it again does nothing.
    match unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => std::mem::forget(library),
        Err(error) => return Err(cause(&error)),
    }
    // Otherwise plmkit's kernels search NVRTC on the library path, and report it missing.
    folders_of(RUNTIME)
        .iter()
        .any(|folder| plmkit_gpu::load_nvrtc_from(folder).is_ok());
    Ok(())
}

/// Returns advice for a libtorch for CUDA that cannot be loaded.
fn remedy() -> String {
    let folder = cpu_folder();
    if MAKE_FOLDERS.iter().any(|made| folder.ends_with(made)) {
        "'make install GPU=1' installs what is missing".to_owned()
    } else {
        let folder = path_text(&folder);
        format!("expected torch 2.11.0 with its CUDA libraries in {folder}, as pip installs it")
    }
}

/// Returns the folder of libtorch for CPUs.
fn cpu_folder() -> PathBuf {
    let found = folders_of(CPU_LIBRARY)
        .into_iter()
        .next()
        .unwrap_or_default();
    // The loader's path can contain `bin/../lib`.
    found.canonicalize().unwrap_or(found)
}

/// Checks that libtorch has the version that this library is compiled for. A pip environment can have another version, and the
/// loader only notices missing functions.
fn check_version() -> Result<(), EsmError> {
    let library = loaded(CPU_LIBRARY);
    // SAFETY: the signature is that of torch's stable C interface. The first bytes of the number are the version.
    let version = library.as_ref().and_then(|library| unsafe {
        let get: Symbol<unsafe extern "C" fn() -> u64> =
            library.get(b"aoti_torch_abi_version\0").ok()?;
        Some(get().to_be_bytes())
    });
    match version {
        Some([major, minor, ..]) if (major, minor) == TORCH => Ok(()),
        found => {
            let version = found.map_or("an older one".to_owned(), |[major, minor, patch, ..]| {
                format!("{major}.{minor}.{patch}")
            });
            Err(EsmError::unavailable(format!(
                "expected libtorch {}.{}; found {version} in {}",
                TORCH.0,
                TORCH.1,
                path_text(&cpu_folder())
            )))
        }
    }
}

/// Returns a library that this process has loaded, by its soname.
fn loaded(soname: &str) -> Option<libloading::Library> {
    // SAFETY: the flag prevents loading.
    let library = unsafe { Library::open(Some(soname), RTLD_NOW | libc::RTLD_NOLOAD) };
    library.ok().map(Into::into)
}

/// Returns the folder in which the loader found a loaded library. If that was a link, also the folder of the file.
fn folders_of(soname: &str) -> Vec<PathBuf> {
    let Some(library) = loaded(soname) else {
        return Vec::new();
    };
    let library: Library = library.into();
    let handle = library.into_raw();
    let mut origin = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: the handle was opened above and is not used after it is closed. The loader writes a path that ends with a 0.
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
    fn libtorch_reports_the_threads_that_were_set() {
        set_threads(NonZeroUsize::new(2).unwrap());
        assert_eq!(tch::get_num_threads(), 2);
        set_threads(NonZeroUsize::MIN);
        assert_eq!(tch::get_num_threads(), 1);
    }

    #[test]
    fn the_folders_of_a_loaded_library_and_of_its_link_are_found() {
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
        // SAFETY: the library is empty.
        let library = unsafe { Library::open(Some(links.join(soname)), RTLD_NOW) }.unwrap();
        assert_eq!(folders_of(soname), [links, files]);
        drop(library);
        assert!(!folders_of(CPU_LIBRARY).is_empty());
    }
}
