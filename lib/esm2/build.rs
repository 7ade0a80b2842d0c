//! Compiles `shim/`, and adds libtorch's folder to the library path of this crate's tests and benchmarks.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-changed=shim");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        println!(
            "cargo::error=LIBTORCH is not set; expected the folder of libtorch, which make setup fetches"
        );
        return;
    };
    // Libraries that libtorch for CUDA needs are not linked, and may be missing.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib,--allow-shlib-undefined");
    let include = Path::new(&libtorch).join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(["shim/shim.cpp", "shim/older.cpp"])
        // System headers give no warnings.
        .flag("-isystem")
        .flag(include)
        .warnings(true)
        .extra_warnings(true)
        .compile("plmkit_shim");
    // Before libtorch.so: the linker would take a symbol of both from libtorch.so, which needs libtorch for CUDA.
    println!("cargo::rustc-link-lib=c10");
}
