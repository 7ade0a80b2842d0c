//! Compiles `shim/`, and lets the tests and benchmarks of this crate find libtorch where they were linked against it.

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
    // What libtorch for CUDA needs may not be there, and is not linked.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib,--allow-shlib-undefined");
    let include = Path::new(&libtorch).join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(["shim/shim.cpp", "shim/older.cpp"])
        // As a system's: its warnings are not ours.
        .flag("-isystem")
        .flag(include)
        .warnings(true)
        .extra_warnings(true)
        .compile("plmkit_shim");
    // Before libtorch.so, which the linker would take for a symbol that both have, and which needs libtorch for CUDA.
    println!("cargo::rustc-link-lib=c10");
}
