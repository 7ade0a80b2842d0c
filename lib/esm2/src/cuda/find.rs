//! Finds and opens the library.
#![allow(unsafe_code)] // opens a library

use std::env;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use plmkit_contract::{cause, path_text};

use super::{Check, Close, Collect, Memory, Open, OpeningGpu, Submit, VERSION, Version, symbol};
use crate::DeviceError;
use crate::device::ON_THE_CPU;

/// The library's file.
const FILE: &str = "libplmkit_cuda.so";
/// The path of the library, if it is nowhere else.
const VARIABLE: &str = "PLMKIT_CUDA";
/// The name of the Python package that contains the library.
const PACKAGE: &str = "plmkit_cuda";

/// The functions of the library, which stays open.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) check: Check,
    pub(super) open: Open,
    pub(super) submit: Submit,
    pub(super) collect: Collect,
    pub(super) memory: Memory,
    pub(super) close: Close,
}

/// Returns the functions of the library. Opens it on the first call.
pub(super) fn functions(gpu: Option<&OpeningGpu>) -> Result<&'static Functions, DeviceError> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = path.map_or_else(|| find(&program_folder()), PathBuf::from);
    let found = open(&path).map_err(|reason| {
        DeviceError::Unavailable(match gpu {
            Some(OpeningGpu { device, name, .. }) => format!(
                "device '{device}', {name}, needs {FILE}, {reason}; 'make install GPU=1' or pip install 'plmkit[gpu]' \
                 brings it, and {VARIABLE} names another; {ON_THE_CPU}"
            ),
            None => format!("--kernels libtorch needs {FILE}, {reason}"),
        })
    })?;
    Ok(FUNCTIONS.get_or_init(|| found))
}

fn program_folder() -> PathBuf {
    let program = env::current_exe().ok();
    let folder = program.and_then(|program| program.parent().map(Path::to_owned));
    folder.unwrap_or_default()
}

/// Returns the path of the library, seen from the folder of the programs: beside them, as `make install` puts it, or in the
/// packages of a Python environment (virtual, Conda's, of a user, of the machine, or of `pip install --target`).
fn find(programs: &Path) -> PathBuf {
    let prefix = programs.join("..");
    let mut places = vec![
        programs.to_owned(),
        prefix.join("lib/plmkit"),
        prefix.join(PACKAGE),
    ];
    for (lib, packages) in [
        ("lib", "site-packages"),
        ("lib64", "site-packages"),
        ("lib", "dist-packages"),
    ] {
        let pythons = std::fs::read_dir(prefix.join(lib))
            .into_iter()
            .flatten()
            .flatten();
        let pythons =
            pythons.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"));
        places.extend(pythons.map(|entry| entry.path().join(packages).join(PACKAGE)));
    }
    let paths = places.into_iter().map(|place| place.join(FILE));
    let mut present = paths.filter(|path| path.is_file());
    present
        .next()
        .unwrap_or_else(|| prefix.join("lib/plmkit").join(FILE))
}

/// Opens the library at `path` for the rest of the process.
fn open(path: &Path) -> Result<Functions, String> {
    let named = path_text(path);
    // SAFETY: its initialisers are those of libtorch and C++, which register operations in their own tables.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    let library = library.map_err(|error| format!("which cannot be loaded: {}", cause(&error)))?;
    // SAFETY: every version of the library has this function, and its text stays.
    let version = unsafe {
        let version = library.get::<Version>(symbol::VERSION.as_bytes());
        version.map(|version| CStr::from_ptr(version()).to_string_lossy().into_owned())
    };
    let version = version.map_err(|_| format!("and {named} is another library"))?;
    if version != VERSION {
        return Err(format!(
            "expected that of {VERSION}; found that of {version} in {named}"
        ));
    }
    // SAFETY: a library of this version has these functions with these types.
    let functions = unsafe {
        let missing = |error: libloading::Error| format!("and {named}: {}", cause(&error));
        Functions {
            check: *library.get(symbol::CHECK.as_bytes()).map_err(missing)?,
            open: *library.get(symbol::OPEN.as_bytes()).map_err(missing)?,
            submit: *library.get(symbol::SUBMIT.as_bytes()).map_err(missing)?,
            collect: *library.get(symbol::COLLECT.as_bytes()).map_err(missing)?,
            memory: *library.get(symbol::MEMORY.as_bytes()).map_err(missing)?,
            close: *library.get(symbol::CLOSE.as_bytes()).map_err(missing)?,
        }
    };
    std::mem::forget(library);
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_library_is_found_beside_the_programs_and_in_python_s_packages() {
        let root = tempfile::tempdir().unwrap();
        let programs = root.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let expected = programs.join("../lib/plmkit").join(FILE);
        assert_eq!(find(&programs), expected, "where it is expected");
        let mut folders = Vec::new();
        for folder in [
            "lib/python3.13/site-packages/plmkit_cuda",
            "plmkit_cuda",
            "lib/plmkit",
            "bin",
        ] {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(FILE), b"").unwrap();
            let found = find(&programs).canonicalize().unwrap();
            folders.push(folder.join(FILE));
            assert_eq!(Some(&found), folders.last());
        }
    }

    #[test]
    fn a_file_that_is_no_library_or_another_one_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        let missing = open(&path).unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
        let compile = |text: &str| {
            let source = root.path().join("library.c");
            fs::write(&source, text).unwrap();
            let compiled = Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .arg(&path)
                .arg(&source)
                .status();
            assert!(compiled.unwrap().success());
            let error = open(&path).unwrap_err();
            fs::remove_file(&path).unwrap();
            error
        };
        let other = compile("int other;");
        assert!(other.ends_with("is another library"), "{other}");
        let old = compile(
            "const char *plmkit_cuda_version(void) { return \"plmkit 0.0.9, interface 7\"; }",
        );
        assert!(
            old.starts_with(&format!(
                "expected that of {VERSION}; found that of plmkit 0.0.9, interface 7 in "
            )),
            "{old}"
        );
    }
}
