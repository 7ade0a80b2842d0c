//! The workspace of matrix products on a GPU.
#![allow(unsafe_code)] // sets a variable of this process's environment

use std::env;

/// The workspace of cublasLt for a product with a bias, in KiB. libtorch reads it at the first product.
const VARIABLE: &str = "CUBLASLT_WORKSPACE_SIZE";
/// 32 MiB, as NVIDIA recommends for Hopper and later, and as libtorch gives to cublas there. libtorch's default for cublasLt is 1 MiB.
const KIB: &str = "32768";

/// Sets the variable, unless the user has. `main` must call this before anything else.
pub(crate) fn set() {
    if env::var_os(VARIABLE).is_none() {
        // SAFETY: the process has one thread, so no other reads the environment meanwhile.
        unsafe { env::set_var(VARIABLE, KIB) };
    }
}
