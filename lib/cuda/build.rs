//! Compiles `shim/`, and tells the linker where the library finds libtorch at run time, and when.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-env-changed=PLMKIT_PORTABLE");
    println!("cargo::rerun-if-changed=shim");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        println!(
            "cargo::error=LIBTORCH is not set; expected the folder of libtorch, which make setup GPU=1 fetches"
        );
        return;
    };
    // As `make install` and pip lay it out.
    let mut folders = vec!["$ORIGIN/torch/lib", "$ORIGIN/../torch/lib"];
    let built_with = format!("{libtorch}/lib");
    if env::var_os("PLMKIT_PORTABLE").is_none() {
        folders.push(&built_with);
    }
    for folder in folders {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
    // Libraries that libtorch for CUDA needs are not linked, and may be missing.
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    // Functions of libtorch are looked up as they are called, so that of a libtorch that lacks some its version can be named.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,lazy");
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
