//! Finds and opens the library.
#![allow(unsafe_code)] // opens a library

use std::env;
use std::ffi::{CStr, OsStr, c_void};
use std::fs::{self, File};
use std::io::{self, Read};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use plmkit_kit::{Exit, Fault, cause, check_regular, io_text, path_text};

use super::interface::{Functions, OpeningGpu, VERSION, Version};
use crate::error::{EsmError, ON_THE_CPU};

/// The library's file.
const FILE: &str = "libplmkit_cuda.so";
/// The path of the library, if it is nowhere else.
const VARIABLE: &str = "PLMKIT_CUDA";
/// The name of the Python package that contains the library.
const PACKAGE: &str = "plmkit_cuda";

/// Where the loader looks before the folders that a library names.
const LOADER_PATH: &str = "LD_LIBRARY_PATH";
/// How the version begins that the library is compiled for; the library itself checks it, once it is loaded.
const TORCH: &str = "2.11.";

/// Returns the functions of the library. Opens it on the first call.
pub(super) fn functions(gpu: Option<&OpeningGpu>) -> Result<&'static Functions, EsmError> {
    static FUNCTIONS: OnceLock<&Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let found = place().and_then(|path| open(&path)).map_err(|reason| {
        let message = match gpu {
            Some(OpeningGpu { device, name, .. }) => format!(
                "device '{device}', {name}, needs {FILE}, {reason}; 'make install GPU=1' or pip install 'plmkit[gpu]' \
                 brings it, and {VARIABLE} names another; {ON_THE_CPU}"
            ),
            None => format!("--kernels libtorch needs {FILE}, {reason}"),
        };
        let exit = if NO_MEMORY.iter().any(|words| reason.contains(words)) {
            Exit::Transient
        } else {
            Exit::Unavailable
        };
        Fault::new(exit, message)
    })?;
    Ok(FUNCTIONS.get_or_init(|| found))
}

/// The loader's words for memory that was refused.
const NO_MEMORY: [&str; 2] = ["cannot allocate memory", "failed to map segment"];

/// Returns the path of the library.
fn place() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let program = env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent);
    let folder = folder.ok_or("which is beside the programs, whose place /proc does not tell")?;
    Ok(find(folder))
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
    for lib in ["lib", "lib64"] {
        let entries = fs::read_dir(prefix.join(lib)).into_iter().flatten();
        let pythons = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().starts_with(b"python3")
        });
        for python in pythons.map(|entry| entry.path()) {
            let packages = ["site-packages", "dist-packages"];
            places.extend(packages.map(|packages| python.join(packages).join(PACKAGE)));
        }
    }
    let paths = places.into_iter().map(|place| place.join(FILE));
    let mut present = paths.filter(|path| path.is_file());
    present
        .next()
        .unwrap_or_else(|| prefix.join("lib/plmkit").join(FILE))
}

/// Checks that a library is a file that is whole: using what a shorter one lacks would end the process.
fn check_file(path: &Path) -> io::Result<()> {
    /// Where the header of a 64-bit ELF file has the offset of its section headers, their size and their number.
    const SECTIONS: (usize, usize, usize) = (0x28, 0x3a, 0x3c);
    let metadata = path.metadata()?;
    check_regular(&metadata)?;
    let mut header = [0; 64];
    if File::open(path)?.read_exact(&mut header).is_err() {
        return Ok(()); // The loader has words for it.
    }
    let number = |at: usize, bytes: usize| {
        let bytes = header[at..at + bytes].iter().rev();
        bytes.fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
    };
    let (offset, size, count) = SECTIONS;
    let sections = number(size, 2) * number(count, 2);
    let end = number(offset, 8).saturating_add(sections);
    if header.starts_with(b"\x7fELF\x02\x01") && end > metadata.len() {
        let what = format!("cut; expected {end} bytes, found {}", metadata.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// What to say of a libtorch that the loader finds on its path of `folders`, before the one of the library, if its files do not say
/// that it is of the expected version.
fn other_libtorch(folders: &OsStr) -> String {
    let mut folders = env::split_paths(folders);
    let Some(found) = folders.find(|folder| folder.join("libtorch_cpu.so").exists()) else {
        return String::new();
    };
    let read = |file| fs::read_to_string(found.join("..").join(file)).unwrap_or_default();
    let of_pip = read("version.py");
    // __version__ = '2.5.1+cu124'
    let of_pip = of_pip
        .lines()
        .find_map(|line| line.strip_prefix("__version__ = "));
    let version = of_pip.map_or_else(|| read("build-version"), str::to_owned);
    let version = version.trim().trim_matches('\'');
    if version.starts_with(TORCH) {
        return String::new();
    }
    let version = if version.is_empty() {
        "of unknown version"
    } else {
        version
    };
    let found = path_text(&found);
    format!("; {LOADER_PATH} names libtorch {version} in {found}: expected {TORCH}0, or none there")
}

/// Opens the library at `path` for the rest of the process.
fn open(path: &Path) -> Result<&'static Functions, String> {
    let named = path_text(path);
    // Not a name that the loader searches, nor a file that would hang or end the process.
    let path = path
        .canonicalize()
        .and_then(|path| check_file(&path).map(|()| path));
    let path =
        path.map_err(|error| format!("which cannot be loaded: {named}: {}", io_text(&error)))?;
    // SAFETY: its initialisers are those of libtorch and C++, which register operations in their own tables.
    let library = unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let reason = cause(&error).replace(char::is_control, " ");
        let other = other_libtorch(&env::var_os(LOADER_PATH).unwrap_or_default());
        format!("which cannot be loaded: {reason}{other}")
    })?;
    // SAFETY: every version of the library has this function, and its text stays.
    let version = unsafe {
        let version = library.get::<Version>(b"plmkit_cuda_version");
        let text = version.ok().map(|version| version());
        let text = text.filter(|text| !text.is_null());
        text.map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    let version = version.ok_or_else(|| format!("and {named} is another library"))?;
    if version != VERSION {
        return Err(format!(
            "expected that of {VERSION}; found that of {} in {named}",
            version.replace(char::is_control, " ")
        ));
    }
    // SAFETY: a library of this version has this variable, of as many pointers as `Functions`, and stays open.
    let (table, pointers) = unsafe {
        let table = library.get::<*const Functions>(b"plmkit_cuda_functions");
        let table = *table.map_err(|error| format!("and {named}: {}", cause(&error)))?;
        let pointers = *table.cast::<[*const c_void; Functions::NAMES.len()]>();
        (table, pointers)
    };
    let mut functions = iter::zip(Functions::NAMES, pointers);
    if let Some((name, _)) = functions.find(|(_, pointer)| pointer.is_null()) {
        return Err(format!("and {named} lacks the function '{name}'"));
    }
    std::mem::forget(library);
    // SAFETY: as above, and no function is null.
    Ok(unsafe { &*table })
}

#[cfg(test)]
mod tests {
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
    fn another_libtorch_on_the_path_of_the_loader_is_named() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("torch/lib");
        fs::create_dir_all(&lib).unwrap();
        let folders = env::join_paths([root.path(), &lib]).unwrap();
        let told = |expected: &str| {
            let found = other_libtorch(&folders);
            let lib = lib.display();
            let what = format!(
                "; LD_LIBRARY_PATH names libtorch {expected} in {lib}: expected 2.11.0, or none there"
            );
            assert_eq!(found, if expected.is_empty() { "" } else { &*what });
        };
        told("");
        fs::write(lib.join("libtorch_cpu.so"), "").unwrap();
        told("of unknown version");
        fs::write(lib.join("../build-version"), "2.4.0+cpu\n").unwrap();
        told("2.4.0+cpu");
        fs::write(
            lib.join("../version.py"),
            "import x\n__version__ = '2.5.1+cu124'\n",
        )
        .unwrap();
        told("2.5.1+cu124");
        fs::write(lib.join("../version.py"), "__version__ = '2.11.0+cu130'\n").unwrap();
        told("");
    }

    #[test]
    fn a_file_that_is_no_library_or_another_one_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        let missing = open(&path).unwrap_err();
        assert!(missing.contains("no such file"), "{missing}");
        let folder = open(root.path()).unwrap_err();
        assert!(folder.ends_with("is a directory"), "{folder}");
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
        let program = env::current_exe().unwrap();
        fs::write(&path, &fs::read(program).unwrap()[..100_000]).unwrap();
        let cut = open(&path).unwrap_err();
        assert!(
            cut.contains("cut; expected ") && cut.ends_with("found 100000"),
            "{cut}"
        );
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
        let version =
            format!("const char *plmkit_cuda_version(void) {{ return \"{VERSION}\"; }}\n");
        let bare = compile(&version);
        assert!(bare.contains("plmkit_cuda_functions"), "{bare}");
        for (number, name) in Functions::NAMES.into_iter().enumerate() {
            let null = compile(&format!(
                "{version}void f(void) {{}}\n\
                 void (*plmkit_cuda_functions[6])(void) = {{f, f, f, f, f, f, [{number}] = 0}};"
            ));
            assert!(
                null.ends_with(&format!("lacks the function '{name}'")),
                "{null}"
            );
        }
    }
}
