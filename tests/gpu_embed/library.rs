//! `gpu-embed` with the library that computes on GPUs, by libtorch's operations on the CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plmkit_store::EmbeddingsReader;
use serde_json::Value;

use crate::common::{self, assert_failed, assert_fails, run, test_data};
use crate::devices::{BOTH, H100, embed_by, with_driver};
use crate::outputs::{self, changed_model, lowest_cosine};
use crate::{assert_has, stderr};

/// The library that `make build GPU=1` puts beside the programs.
fn library() -> PathBuf {
    Path::new(common::program("gpu-embed")).with_file_name("libplmkit_cuda.so")
}

#[test]
#[ignore = "needs libplmkit_cuda.so: make test GPU=1"]
fn libtorch_computes_the_same_in_f32_and_close_in_narrow_types() {
    let case = outputs::Case::new();
    let model = test_data("model-tiny");
    run(&mut case.embed(&model, "f32.parquet", &[]));
    let expected = case.means("f32.parquet");
    for (dtype, least) in [("f32", 0.999_999_9), ("bf16", 0.9995), ("f16", 0.99999)] {
        let out = format!("{dtype}-libtorch.parquet");
        let options = ["--dtype", dtype, "--kernels", "libtorch"];
        run(&mut case.embed(&model, &out, &options));
        let cosine = lowest_cosine(&case.means(&out), &expected);
        println!("{dtype}: lowest cosine 1 - {:.1e}", 1.0 - cosine);
        assert!(
            cosine >= least && (dtype == "f32" || cosine < 1.0),
            "{dtype}: {cosine}"
        );
    }
}

#[test]
#[ignore = "needs libplmkit_cuda.so: make test GPU=1"]
fn fp8_is_measured_on_the_sequences_of_the_run() {
    let case = outputs::Case::new();
    let fp8 = ["--dtype", "fp8", "--kernels", "libtorch"];
    // With 64 channels, layers that add less: the model itself is refused.
    let models = tempfile::tempdir().expect("create");
    let quiet = changed_model(models.path(), |name, _| {
        Some(if name.ends_with("output.dense.weight") {
            0.3
        } else {
            1.0
        })
    });
    run(&mut case.embed(&quiet, "f32.parquet", &[]));
    let said = run(&mut case.embed(&quiet, "fp8.parquet", &fp8));
    assert_has(&said, "fp8: over 2 sequences of the run, 256 tokens, ");
    let cosine = lowest_cosine(&case.means("fp8.parquet"), &case.means("f32.parquet"));
    println!("fp8: lowest cosine 1 - {:.1e}", 1.0 - cosine);
    assert!((0.999..0.999_999).contains(&cosine), "{cosine}");
    let reader = EmbeddingsReader::open(&case.path("fp8.parquet")).expect("open");
    let parity = reader.provenance().parity.clone().expect("it is recorded");
    assert_eq!(
        (&parity["sequences"], &parity["tokens"]),
        (&2.into(), &256.into())
    );
    // Its feed-forward network is 24 wide.
    let narrow = case.embed(&test_data("model-tiny-esmc"), "narrow.parquet", &fp8);
    let what = "model-tiny-esmc: --dtype fp8: expected a multiple of 16 for ";
    assert_fails(narrow, 2, what);
    // Other channels are below the least value of 8 bits beside the largest.
    let lossy = outputs::with_outliers(case.folder.path(), 1e7);
    let what = "model: --dtype fp8 is refused: over 2 sequences of the run, 256 tokens, ";
    assert_fails(case.embed(&lossy, "lossy.parquet", &fp8), 65, what);
    assert!(!case.path("lossy.parquet").exists());
}

#[test]
#[ignore = "needs libplmkit_cuda.so: make test GPU=1"]
fn sequences_that_overflow_in_f16_are_computed_again_in_f32() {
    let case = outputs::Case::new();
    // The same function except for rounding, with intermediate values beyond the range of f16.
    let model = changed_model(case.folder.path(), |name, _| {
        Some(if name.contains("layer.1.attention.self.value") {
            1e5
        } else if name.contains("layer.1.attention.output.dense.weight") {
            1e-5
        } else {
            1.0
        })
    });
    run(&mut case.embed(&model, "f32.parquet", &[]));
    let f16 = ["--dtype", "f16", "--kernels", "libtorch"];
    let events = case.path("events.jsonl");
    let said = run(case
        .embed(&model, "f16.parquet", &f16)
        .arg("--events")
        .arg(&events));
    assert_has(&said, "20 sequences again in f32");
    let events = fs::read_to_string(events).expect("events");
    let events = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"));
    let recomputed = events.filter_map(|event: Value| event["recomputed"].as_u64());
    assert_eq!(recomputed.sum::<u64>(), 20);
    let cosine = lowest_cosine(&case.means("f16.parquet"), &case.means("f32.parquet"));
    assert!(cosine > 0.999, "{cosine}");
    let bf16 = ["--dtype", "bf16", "--kernels", "libtorch"];
    let said = run(&mut case.embed(&model, "bf16.parquet", &bf16));
    assert!(!said.contains("again"), "{said}");
}

/// The program with libtorch for CUDA and without the libraries that it needs: links in the layout of an installation.
fn without_cuda_libraries(folder: &Path) -> PathBuf {
    let libtorch = Path::new(env!("LIBTORCH"));
    let installed = folder.join("lib/plmkit");
    let link = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().expect("folder")).expect("folder");
        std::os::unix::fs::symlink(from, to).expect("link");
    };
    for entry in fs::read_dir(libtorch.join("lib")).expect("libtorch") {
        let entry = entry.expect("libtorch");
        let to = installed.join("torch/lib").join(entry.file_name());
        link(&entry.path(), to);
    }
    for needed in ["libcudart.so.13", "libcupti.so.13"] {
        let needed = Path::new("nvidia/cu13/lib").join(needed);
        link(&libtorch.join("..").join(&needed), installed.join(needed));
    }
    fs::copy(library(), installed.join("libplmkit_cuda.so")).expect("make build GPU=1");
    let programs = folder.join("bin");
    fs::create_dir(&programs).expect("folder");
    common::copied("gpu-embed", &programs)
}

#[test]
#[ignore = "needs libplmkit_cuda.so: make test GPU=1"]
fn a_missing_cuda_library_is_named_with_a_remedy() {
    let (case, driver) = with_driver();
    let folder = tempfile::tempdir().expect("temp folder");
    let program = without_cuda_libraries(folder.path());
    let embed = |device: &str, gpus: &str| {
        embed_by(Command::new(&program), &case, driver.path(), device, gpus)
    };
    let second = "Tesla P40=6.1,NVIDIA A100=8.0";
    for (device, gpus, named) in [
        ("cuda:1", BOTH, "device 'cuda:1', NVIDIA A100, "),
        ("auto", H100, "device 'auto', NVIDIA H100, "),
        // The first usable GPU.
        ("auto", second, "device 'auto', NVIDIA A100, "),
    ] {
        let output = embed(device, gpus).output().expect("run");
        let what = format!("{named}needs libtorch for CUDA, which cannot be loaded: lib");
        assert_failed(&output, 69, &what);
        let said = stderr(&output);
        let reason = ": cannot open shared object file: No such file or directory; ";
        let (library, remedy) = said.trim_end().rsplit_once(reason).expect(reason);
        assert_has(library, ".so.");
        let installs = ["torch 2.11.0", "make install GPU=1"];
        assert!(
            installs.iter().any(|install| remedy.contains(install)),
            "{said}"
        );
        assert_has(remedy, "--device cpu computes on the CPU");
    }
    run(&mut embed("cpu", H100));
    let on_cpu = fs::read(case.path("e.parquet")).expect("output");
    assert!(on_cpu == case.undisturbed());
}
