//! `gpu-embed --device`: what is missing for a GPU is said in one line, and the search for a token budget.
#![cfg(feature = "torch")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::case::Case;
use common::{all, assert_failed, bin, run, test_data};
use serde_json::Value;

/// A folder with a driver that tells of other GPUs than there are.
fn fake_driver(folder: &Path) -> PathBuf {
    let library = folder.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_cuda.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    run(compiler.arg(&library).arg(source));
    folder.to_owned()
}

/// A run on `device` of a machine with such a driver.
fn embed(case: &Case, driver: &Path, device: &str, gpus: &str) -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg(case.path("b.arrow"))
        .arg("--model")
        .arg(&case.model)
        .arg("--out")
        .arg(case.path("e.parquet"))
        .args(["--device", device, "--progress", "none"])
        .env("LD_LIBRARY_PATH", driver)
        .env_remove("CUDA_VISIBLE_DEVICES");
    if !gpus.is_empty() {
        command.env("FAKE_GPUS", gpus);
    }
    command
}

const LIBRARY: &str = "needs libtorch for CUDA, which cannot be loaded: ";

#[test]
fn each_thing_that_is_missing_for_a_gpu_has_a_line_of_its_own() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    let both = "NVIDIA H100=9.0,NVIDIA A100=8.0";
    for (device, gpus, expected) in [
        ("cuda", "", "device 'cuda:0' does not exist; found no GPU"),
        (
            "cuda:2",
            both,
            "device 'cuda:2' does not exist; found 2 GPUs: NVIDIA H100, NVIDIA A100",
        ),
        (
            "cuda",
            "Tesla P40=6.1",
            "device 'cuda:0', Tesla P40, has compute capability 6.1; expected at least 7.5",
        ),
        (
            "all",
            "Tesla P40=6.1",
            "device 'all', Tesla P40, has compute capability 6.1; expected at least 7.5",
        ),
        ("all", "", "device 'all' does not exist; found no GPU"),
    ] {
        let output = embed(&case, &driver, device, gpus).output().expect("run");
        assert_failed(&output, 69, expected);
    }
    let output = embed(&case, &driver, "cuda", both)
        .env("FAKE_STATUS", "803")
        .output()
        .expect("run");
    assert_failed(
        &output,
        69,
        "device 'cuda:0': the NVIDIA driver does not work: cuInit: system has unsupported display driver",
    );
    let names = all(case.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("e.parquet")),
        "{names:?}"
    );
}

/// Whether this machine could compute on a GPU if it had one.
fn has_libtorch_for_cuda(output: &Output) -> bool {
    !String::from_utf8_lossy(&output.stderr).contains(LIBRARY)
}

#[test]
fn without_libtorch_for_cuda_the_line_names_what_cannot_be_loaded() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    let gpu = "NVIDIA H100=9.0,NVIDIA A100=8.0";
    for (device, named) in [
        ("cuda:1", "device 'cuda:1', NVIDIA A100, "),
        // Each worker says it, and the run once.
        ("all", "NVIDIA H100, "),
    ] {
        let output = embed(&case, &driver, device, gpu).output().expect("run");
        if has_libtorch_for_cuda(&output) {
            eprintln!("SKIPPED: this machine has libtorch for CUDA and all that it needs");
            return;
        }
        assert_failed(&output, 69, &format!("{named}{LIBRARY}"));
    }
    // A driver alone does not keep a machine from computing.
    let said = run(&mut embed(&case, &driver, "auto", gpu));
    assert!(said.contains("; the run is on the CPU"), "{said}");
    let on_cpu = fs::read(case.path("e.parquet")).expect("output");
    assert!(on_cpu == case.undisturbed());
}

#[test]
fn without_a_driver_the_line_says_so_and_auto_is_the_cpu() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    // Found before any other, and no library.
    fs::write(folder.path().join("libcuda.so.1"), "").expect("write");
    for device in ["cuda", "all"] {
        let output = embed(&case, folder.path(), device, "").output();
        assert_failed(
            &output.expect("run"),
            69,
            "needs an NVIDIA driver, and this machine has none (",
        );
    }
    let said = run(&mut embed(&case, folder.path(), "auto", ""));
    assert!(!said.contains("driver"), "{said}");
}

#[test]
fn one_worker_for_each_gpu_and_no_other_number() {
    let case = Case::new();
    let mut embed = embed(&case, Path::new("/"), "all", "");
    let output = embed.args(["--workers", "2"]).output().expect("run");
    assert_failed(
        &output,
        2,
        "--workers: with --device all there is one for each GPU",
    );
}

fn probe() -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg("--probe")
        .arg("--model")
        .arg(test_data("model-tiny"));
    command.args(["--device", "cpu"]);
    command
}

#[test]
fn the_largest_batch_is_found_and_four_fifths_of_it_are_recommended() {
    let folder = tempfile::tempdir().expect("temp folder");
    let events = folder.path().join("events.jsonl");
    let output = probe()
        .args(["--inject", "out-of-memory-above=21000", "--events"])
        .arg(&events)
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // 20 sequences of 1,024 tokens.
    assert_eq!(output.stdout, b"16384\n");
    assert!(said.contains("20480 tokens fit at once"), "{said}");
    let event: Value = serde_json::from_slice(&fs::read(&events).expect("events")).expect("JSON");
    assert_eq!(event["type"], "probe");
    assert_eq!(
        (&event["largest_tokens"], &event["recommended_tokens"]),
        (&20480.into(), &16384.into())
    );
    let (tries, failed) = (event["tries"].as_u64(), event["out_of_memory"].as_u64());
    assert!(tries > failed && failed > Some(0), "{event}");
    let mut report = bin("monitor-log");
    report.args(["report", "--events"]).arg(&events);
    // It is of no run, and no reason to refuse the file.
    run(report.arg("--out").arg(folder.path().join("report.json")));
}

#[test]
fn a_probe_that_can_find_nothing_says_why() {
    let output = probe()
        .args(["--quiet", "--inject", "out-of-memory-above=1000"])
        .output()
        .expect("run");
    assert_failed(
        &output,
        75,
        "not even one sequence of 1022 residues fits into the memory of cpu",
    );
    let output = probe().arg("batches.arrow").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn on_a_cpu_nothing_is_measured_and_the_default_stays() {
    let output = probe().output().expect("run");
    assert_eq!(output.stdout, b"16384\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cpu: nothing is measured"), "{said}");
}

#[test]
fn a_batch_size_is_kept_until_it_is_of_other_work() {
    let case = Case::new();
    let path = case.path("batch-size.json");
    let size = |options: &[&str]| {
        let mut probe = probe();
        probe.args(["--inject", "out-of-memory-above=21000", "--out"]);
        probe.arg(&path).args(options).output().expect("run")
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let first = size(&[]);
    assert_eq!(first.stdout, b"16384\n", "{}", said(&first));
    assert!(said(&first).contains("20480 tokens fit"));
    let kept = fs::read(&path).expect("batch size");
    let read: Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(read["largest_tokens"], 20480);
    assert_eq!(read["max_batch_tokens"], 16384);
    assert_eq!(read["options"]["dtype"], "f32");

    for options in [&[][..], &["--force"]] {
        let again = size(options);
        assert_eq!(again.stdout, b"16384\n");
        assert!(
            said(&again).contains("already measured"),
            "{}",
            said(&again)
        );
        assert!(!said(&again).contains("tokens fit\n"), "{}", said(&again));
        assert!(kept == fs::read(&path).expect("batch size"));
    }
    let other = size(&["--pool", "max"]);
    let what = "exists and holds other work (columns was [\"mean_4\"] and is now [\"max_4\"]); --force replaces it";
    assert_failed(&other, 73, what);
    // Two workers share the memory.
    let other = size(&["--workers", "2", "--force"]);
    assert_eq!(other.stdout, b"8192\n", "{}", said(&other));

    // pack-batches takes it as its own option.
    let packed = |name: &str, option: &str, value: &str| {
        let out = case.path(name);
        let mut pack = bin("pack-batches");
        pack.arg(case.path("shards/shard-00000.parquet"));
        pack.arg("--out").arg(&out);
        run(pack.args([option, value]));
        fs::read(out).expect("batches")
    };
    let file = path.to_str().expect("text");
    let by_file = packed("by-file.arrow", "--batch-size", file);
    assert!(by_file == packed("by-number.arrow", "--max-batch-tokens", "8192"));

    let text = fs::read_to_string(&path).expect("batch size");
    fs::write(&path, text.replace("8192", "8193")).expect("write");
    assert_failed(
        &size(&[]),
        65,
        "damaged or altered: it does not match its seal; --force replaces it",
    );
    let mut pack = bin("pack-batches");
    pack.args(["shard.parquet", "--out", "c.arrow", "--batch-size", file]);
    assert_failed(&pack.output().expect("run"), 65, "damaged or altered");
    pack.args(["--max-batch-tokens", "5"]);
    assert_eq!(pack.output().expect("run").status.code(), Some(2));
    assert!(size(&["--force"]).status.success());
}
