//! Tells the linker where `gpu-embed` finds libtorch at run time, and when.

use std::env;

/// Where pip puts libtorch, seen from the folder of the programs: the Pythons that torch 2.11 is built for, in virtual environments, in
/// Conda's, of a user (`pip install --user`) and of the machine; and beside that folder (`pip install --target`). The newest first: where there are
/// several, an older one is more likely to have an older torch.
const PYTHONS: [&str; 7] = ["3.14", "3.14t", "3.13", "3.13t", "3.12", "3.11", "3.10"];
const PACKAGES: [(&str, &str); 3] = [
    ("lib", "site-packages"),
    ("lib64", "site-packages"),
    ("lib", "dist-packages"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-env-changed=PLMKIT_PORTABLE");
    if env::var_os("CARGO_FEATURE_TORCH").is_none() {
        return;
    }
    // First as `make install` lays it out. Not by rustflags in .cargo/config.toml: those vanish as soon as a user sets RUSTFLAGS.
    let mut folders = vec!["$ORIGIN/../lib/plmkit/torch/lib".to_owned()];
    if env::var_os("PLMKIT_PORTABLE").is_some() {
        for (lib, packages) in PACKAGES {
            let of = |python| format!("$ORIGIN/../{lib}/python{python}/{packages}/torch/lib");
            folders.extend(PYTHONS.map(of));
        }
        folders.push("$ORIGIN/../torch/lib".to_owned());
    } else {
        // The libtorch of this build, which the tests may be linked with, too.
        folders.extend(env::var("LIBTORCH").map(|libtorch| format!("{libtorch}/lib")));
        for folder in &folders[1..] {
            println!("cargo::rustc-link-arg-tests=-Wl,-rpath,{folder},--allow-shlib-undefined");
        }
    }
    // Functions of libtorch are looked up as they are called, so that of a libtorch that lacks some the program can say which it is.
    println!("cargo::rustc-link-arg-bin=gpu-embed=-Wl,-z,lazy");
    // What libtorch for CUDA needs may not be there, and is not linked.
    println!("cargo::rustc-link-arg-bin=gpu-embed=-Wl,--allow-shlib-undefined");
    for folder in folders {
        println!("cargo::rustc-link-arg-bin=gpu-embed=-Wl,-rpath,{folder}");
    }
}
