//! Calls of the driver, recorded by a stand-in: tests run without a GPU.

#![allow(
    unsafe_code,
    reason = "a library is loaded in the driver's place, and launches are unsafe"
)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use plmkit_contract::Pooling;
use plmkit_gpu::{AddLayerNorm, Dtype, GpuError, Kernels, Pool, Rope};

/// The stand-in for the driver. One test at a time uses it.
struct Driver {
    library: &'static Library,
    _alone: MutexGuard<'static, ()>,
}

/// Loads the stand-in under the driver's name.
fn driver() -> Driver {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let library = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcuda.so.1");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = cc::Build::new()
            .cargo_metadata(false)
            .opt_level(1)
            .host(&target)
            .target(&target)
            .out_dir(folder.path())
            .get_compiler()
            .to_command()
            .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/driver/stand_in.c"
            ))
            .arg("-o")
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // SAFETY: just compiled, and nothing runs as it is loaded.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL).unwrap() }
    });
    let driver = Driver {
        library,
        _alone: alone,
    };
    driver.said();
    driver
}

impl Driver {
    /// Returns the calls since the last call of this method.
    fn said(&self) -> String {
        // SAFETY: the stand-in declares it so.
        unsafe {
            let said = self
                .library
                .get::<unsafe extern "C" fn() -> *const c_char>(b"stand_in_said")
                .unwrap();
            CStr::from_ptr(said()).to_str().unwrap().to_owned()
        }
    }

    /// Sets the status of later launches.
    fn fail_launches(&self, code: i32) {
        // SAFETY: as above.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(i32)>(b"stand_in_fail_launches")
                .unwrap()(code);
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_in_the_words_of_the_driver() {
    let driver = driver();
    let error = Kernels::load(1, Dtype::F16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "CUDA driver: cuDeviceGet failed: invalid device ordinal (101)"
    );
    assert!(matches!(error, GpuError::Driver { code: 101, .. }));
    assert_eq!(driver.said(), "cuInit\n");
}

#[test]
#[ignore = "needs NVRTC: make kernels"]
fn kernels_are_loaded_launched_and_unloaded() {
    let driver = driver();
    let kernels = Kernels::load(0, Dtype::F16).unwrap();
    // NVRTC starts the driver too.
    assert_eq!(
        driver.said(),
        "cuInit\nretain\ncuInit\npush\nload an ELF file\npop\npush\n25 functions\npop\n"
    );

    let at = std::ptr::without_provenance_mut::<c_void>;
    let stream = at(0xabc0);
    let rope = Rope {
        qkv: at(0x1000),
        positions: at(0x2000).cast(),
        turns: at(0x3000).cast(),
        tokens: 1_000,
        heads: 20,
        head_dim: 32,
        norm: None,
    };
    // SAFETY: the stand-in follows no pointer.
    unsafe { kernels.run(stream, &rope).unwrap() };
    assert_eq!(
        driver.said(),
        "push\nrope_packets 167 1 1 256 1 1 0 abc0: 1000 2000 3000 3e8 14 20 6\npop\n"
    );

    let norm = AddLayerNorm {
        x: at(0x1000).cast(),
        y: None,
        weight: at(0x2000).cast(),
        bias: at(0x3000).cast(),
        out: at(0x4000),
        scales: None,
        tokens: 1_000,
        hidden: 1_280,
        eps: 0.5,
        scale: 2.0,
    };
    // SAFETY: as above.
    unsafe { kernels.run(stream, &norm).unwrap() };
    assert_eq!(
        driver.said(),
        "push\nadd_layer_norm_packets 250 1 1 256 1 1 0 abc0: 1000 0 2000 3000 4000 0 3e8 500 2 3f000000 40000000\npop\n"
    );

    let pool = Pool {
        by: Pooling::Std,
        hidden: at(0x1000).cast(),
        cu_seqlens: at(0x2000).cast(),
        out: at(0x3000).cast(),
        workspace: at(0x4000).cast(),
        tokens: 1_000,
        sequences: 3,
        width: 320,
    };
    // SAFETY: as above.
    unsafe { kernels.run(stream, &pool).unwrap() };
    let chunks = "10 3 1 256 1 1 0 abc0: 1000 2000 4000 3000 3 140";
    let sequences = "3 3 1 256 1 1 0 abc0: 2000 4000 3000 140";
    assert_eq!(
        driver.said(),
        format!(
            "push\npool_chunks_mean_packets {chunks}\npop\npush\npool_sequences_mean_packets {sequences}\npop\n\
             push\npool_chunks_std_packets {chunks}\npop\npush\npool_sequences_std_packets {sequences}\npop\n"
        )
    );

    // SAFETY: as above.
    unsafe {
        kernels.run(stream, &Rope { tokens: 0, ..rope }).unwrap();
        kernels
            .run(
                stream,
                &Pool {
                    sequences: 0,
                    ..pool
                },
            )
            .unwrap();
    }
    assert_eq!(driver.said(), "");

    driver.fail_launches(2);
    // SAFETY: as above.
    let error = unsafe { kernels.run(stream, &rope).unwrap_err() };
    driver.fail_launches(0);
    assert!(error.is_out_of_memory(), "{error}");
    assert!(driver.said().ends_with("pop\n"));

    drop(kernels);
    assert_eq!(driver.said(), "push\nunload\npop\nrelease\n");
}
