//! Transfers on a CPU, and on a stand-in for a GPU that records its calls: see `tests/streams/stand_in.cpp`.
#![allow(unsafe_code)] // a library is loaded in libtorch_cuda's place

use std::env;
use std::ffi::{CStr, c_char};
use std::process::Command;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use plmkit_esm2::{DeviceTimes, KernelKind, KernelTimes, Varlen};
use tch::{Device, Kind, Tensor};

use super::{Pending, Transfer};
use crate::device_batch::DeviceBatch;
use crate::timing::Span;

/// The test that runs in a process of its own: other tests expect that there is no CUDA.
const ALONE: &str =
    "transfer::tests::copies_are_ordered_by_the_device_and_the_host_waits_at_the_end";
const LIBRARY: &str = "PLMKIT_STREAMS_STAND_IN";

#[test]
fn copies_on_a_gpu_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libstand_in.so");
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let libtorch = env!("LIBTORCH");
    let output = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .opt_level(0)
        .host(&target)
        .target(&target)
        .out_dir(folder.path())
        .get_compiler()
        .to_command()
        .args(["-std=c++17", "-shared", "-fPIC", "-isystem"])
        .arg(format!("{libtorch}/include"))
        .arg("-isystem")
        .arg(format!("{libtorch}/include/torch/csrc/api/include"))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/streams/stand_in.cpp"
        ))
        .arg("-o")
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let output = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", ALONE])
        .env(LIBRARY, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "needs a process of its own: copies_on_a_gpu_overlap"]
fn copies_are_ordered_by_the_device_and_the_host_waits_at_the_end() {
    let path = env::var_os(LIBRARY).unwrap();
    // SAFETY: the library was compiled for this test and registers itself with libtorch, which no other thread uses.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
    // SAFETY: the function has this type.
    let said = unsafe { library.get::<unsafe extern "C" fn() -> *const c_char>(b"plmkit_said\0") };
    let said = said.unwrap();
    // SAFETY: the text ends with a 0 and stays until the next call.
    let said = || {
        unsafe { CStr::from_ptr(said()) }
            .to_str()
            .unwrap()
            .to_owned()
    };

    let transfer = Transfer::new(Device::Cuda(0), true).unwrap();
    let tokens = [0, 20, 32, 2];
    let varlen = Varlen::new(&tokens, &[0, 4]).unwrap();
    let (batch, copied_in) = DeviceBatch::new(varlen, Kind::Float, &transfer, true).unwrap();
    // The copying stream allocates memory that is kept for the reading stream, which waits for the last copy. Nothing else waits.
    let copy = "memory of stream 1\nstream 1 copies in\nmemory is kept for stream 0\n";
    let expected = [
        "stream 1 records event 1\n",
        &copy.repeat(5),
        "stream 1 records event 2\nstream 0 waits for event 2\n",
    ];
    assert_eq!(said(), expected.concat());

    let begin = transfer.record().unwrap().unwrap();
    batch.time(KernelKind::Gemm).unwrap();
    batch.time(KernelKind::Pooling).unwrap();
    said();
    // The download waits for the computation so far and delays no other stream. The source is kept for it.
    let tensors = [Ok(batch.positions.shallow_clone())];
    let values = transfer.download(tensors).unwrap();
    let expected = "stream 0 records event 6\nstream 2 waits for event 6\nstream 2 records event 7\n\
        stream 2 copies out\nmemory is kept for stream 2\nstream 2 records event 8\n";
    assert_eq!(said(), expected);
    let end = transfer.record().unwrap().unwrap();
    said();
    let pending = Pending {
        columns: vec![values],
        spans: Some((copied_in.unwrap(), Span { begin, end })),
        timer: batch.timer,
    };
    let mut found = vec![0.0; batch.positions.numel()];
    let times = pending.collect(&mut [&mut found]).unwrap();
    assert_eq!(
        said(),
        "the host waits for event 9\nthe host waits for event 2\nthe host waits for event 8\n"
    );
    assert_eq!(found[..4], [0.0, 1.0, 2.0, 3.0]);
    let ms = Duration::from_millis;
    // The clock of the stand-in counts events: from 1 to 2, 3 to 9, 7 to 8.
    let mut kernels = KernelTimes::default();
    kernels[KernelKind::Gemm as usize] = ms(1);
    kernels[KernelKind::Pooling as usize] = ms(1);
    let expected = DeviceTimes {
        h2d: ms(1),
        compute: ms(6),
        d2h: ms(1),
        kernels: Some(kernels),
    };
    assert_eq!(times, Some(expected));
}

#[test]
fn a_cpu_copies_at_once_in_row_major_order() {
    let transfer = Transfer::new(Device::Cpu, true).unwrap();
    let tensor = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]).tr();
    let values = transfer
        .download([Ok(tensor.shallow_clone()), Ok(tensor.shallow_clone())])
        .unwrap();
    assert_eq!(values.read(), [1.0, 3.0, 2.0, 4.0, 1.0, 3.0, 2.0, 4.0]);
    let begin = transfer.begin_upload().unwrap();
    let list = [1f32, 2.0];
    let same = transfer.copy(&transfer.stage(&list).unwrap()).unwrap();
    assert_eq!(same, Tensor::from_slice(&list));
    assert!(transfer.end_upload(begin).unwrap().is_none());
    assert!(transfer.record().unwrap().is_none());
    assert!(transfer.timer().is_none());
}
