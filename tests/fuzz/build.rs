//! Lets the targets that load checkpoints find libtorch where they were linked against it.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg-bins=-Wl,-rpath,{libtorch}/lib");
    }
}
