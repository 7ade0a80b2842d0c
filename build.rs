//! Tells the linker where `gpu-embed` finds libtorch at run time.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if env::var_os("CARGO_FEATURE_TORCH").is_none() {
        return;
    }
    // First as `make install` lays it out, then the libtorch of this build. Not by rustflags in .cargo/config.toml:
    // those vanish as soon as a user sets RUSTFLAGS.
    let mut folders = vec![PathBuf::from("$ORIGIN/../lib/plmkit/torch/lib")];
    folders.extend(env::var_os("LIBTORCH").map(|libtorch| PathBuf::from(libtorch).join("lib")));
    // What libtorch for CUDA needs may not be there, and is not linked.
    println!("cargo::rustc-link-arg-bin=gpu-embed=-Wl,--allow-shlib-undefined");
    for folder in folders {
        println!(
            "cargo::rustc-link-arg-bin=gpu-embed=-Wl,-rpath,{}",
            folder.display()
        );
    }
}
