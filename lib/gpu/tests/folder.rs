//! A compiler that is not on the library path: `make kernels` fetches it and runs this, in a process of its own.

use std::path::Path;

use plmkit_gpu::{Dtype, compile, load_nvrtc_from};

#[test]
#[ignore = "needs NVRTC: make kernels"]
fn nvrtc_is_found_where_it_was_loaded_from() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.libtorch/nvidia/cu13/lib");
    load_nvrtc_from(&folder).unwrap();
    let image = compile(90, Dtype::Bf16).unwrap();
    assert_eq!(&image.code[..4], b"\x7fELF");
}
