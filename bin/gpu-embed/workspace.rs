//! The memory that matrix products on a GPU may use for themselves.
#![allow(unsafe_code)] // sets a variable of this process's environment

use std::env;

/// How much cublasLt gets for a product with a bias, in KiB. libtorch reads it at the first one.
const VARIABLE: &str = "CUBLASLT_WORKSPACE_SIZE";
/// 32 MiB, what NVIDIA recommends for Hopper and later and what libtorch gives to cublas there. Its own value for cublasLt is 1 MiB.
const KIB: &str = "32768";

/// Sets it where the user has not. To be called by `main` before anything else.
pub(crate) fn set() {
    if env::var_os(VARIABLE).is_none() {
        // SAFETY: the process has one thread, so that nobody reads the environment meanwhile.
        unsafe { env::set_var(VARIABLE, KIB) };
    }
}
