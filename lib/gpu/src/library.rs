//! Loads the libraries of CUDA at run time.

use libloading::Library;
use plmkit_kit::cause;

use crate::error::GpuError;

/// The driver's library. Not `libcuda.so`: a toolkit has a stub of that name that can only be linked against.
pub(crate) const DRIVER: &str = "libcuda.so.1";

impl GpuError {
    /// Whether the machine has no driver. A driver that cannot be loaded, such as an empty file, is another error.
    pub fn is_missing_driver(&self) -> bool {
        const MISSING: &str = "cannot open shared object file: No such file or directory";
        matches!(self, Self::NoLibrary(reason) if *reason == format!("{DRIVER}: {MISSING}"))
    }
}

/// Opens the driver's library.
pub(crate) fn open_driver() -> Result<Library, GpuError> {
    open(&[DRIVER])
}

/// Opens the first of these libraries that can be opened. Returns the error of the first if none can.
pub(crate) fn open(names: &[&str]) -> Result<Library, GpuError> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: loading NVRTC or the driver only sets up their own tables.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) if reason.is_empty() => reason = cause(&error),
            Err(_) => {}
        }
    }
    Err(GpuError::NoLibrary(reason))
}

/// Declares a struct of functions of a library that is loaded at run time.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "the names are those of the library")]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Finds all functions in a library, which stays loaded.
            pub(crate) fn find(library: libloading::Library, name: &'static str) -> Result<Self, $crate::GpuError> {
                let table = Self {
                    // SAFETY: the types are those of the library's header.
                    $($name: *unsafe { library.get(stringify!($name)) }.map_err(|_| $crate::GpuError::NoSymbol {
                        library: name,
                        symbol: stringify!($name),
                    })?,)*
                };
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}

/// Calls a function of a table, and returns an error for any status but success. The caller says why the call is safe.
macro_rules! call {
    ($table:expr, $name:ident($($argument:expr),*)) => {
        $table.check(stringify!($name).trim_end_matches("_v2"), unsafe {
            ($table.$name)($($argument),*)
        })
    };
}
pub(crate) use {call, functions};

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int};

    use super::*;

    functions! {
        /// A function of the C library.
        C: strlen(*const c_char) -> usize;
    }
    functions! {
        /// A function of no library.
        #[allow(dead_code, reason = "it is not found")]
        Nothing: plmkit_has_no_such_function(c_int) -> c_int;
    }

    #[test]
    fn missing_libraries_and_functions_are_named() {
        let none = "libplmkit-none.so.1";
        let error = open(&[none, "libplmkit-none.so"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot load libplmkit-none.so.1: cannot open shared object file: No such file or directory"
        );
        let c = C::find(open(&[none, "libc.so.6"]).unwrap(), "libc").unwrap();
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { (c.strlen)(c"four".as_ptr()) }, 4);
        let error = Nothing::find(open(&["libc.so.6"]).unwrap(), "libc").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("libc has no plmkit_has_no_such_function: "),
            "{error}"
        );
    }

    #[test]
    fn a_driver_that_cannot_be_loaded_is_not_missing() {
        for (reason, expected) in [
            (
                "libcuda.so.1: cannot open shared object file: No such file or directory",
                true,
            ),
            ("/usr/lib/libcuda.so.1: file too short", false),
            (
                "libnvidia-x.so: cannot open shared object file: No such file or directory",
                false,
            ),
        ] {
            assert_eq!(
                GpuError::NoLibrary(reason.to_owned()).is_missing_driver(),
                expected
            );
        }
    }
}
