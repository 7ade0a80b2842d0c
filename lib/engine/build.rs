//! Lets the tests and benchmarks of this crate find libtorch where they were linked against it.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib,--allow-shlib-undefined");
    }
}
