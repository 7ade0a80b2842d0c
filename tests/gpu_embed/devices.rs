//! `gpu-embed --device`: what is missing for a GPU is said in one line, and the search for a token budget.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::case::{Case, SIGTERM, send};
use crate::common::{self, all, assert_failed, assert_fails, bin, run, test_data};
use serde_json::Value;

/// A folder with a driver that tells of other GPUs than there are.
fn fake_driver(folder: &Path) -> PathBuf {
    let library = folder.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_cuda.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    run(compiler.arg(&library).arg(source));
    // As in a toolkit's folder of stubs, which is no driver.
    fs::write(folder.join("libcuda.so"), "").expect("write");
    folder.to_owned()
}

/// A run on `device` of a machine with such a driver.
fn embed(case: &Case, driver: &Path, device: &str, gpus: &str) -> Command {
    embed_by(bin("gpu-embed"), case, driver, device, gpus)
}

/// The same by another copy of the program.
fn embed_by(mut command: Command, case: &Case, driver: &Path, device: &str, gpus: &str) -> Command {
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
        assert_fails(embed(&case, &driver, device, gpus), 69, expected);
    }
    assert_fails(
        embed(&case, &driver, "cuda", both).env("FAKE_STATUS", "803"),
        69,
        "device 'cuda:0': the NVIDIA driver does not work: cuInit: system has unsupported display driver",
    );
    let names = all(case.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("e.parquet")),
        "{names:?}"
    );
}

/// A process that does not outlive its test.
struct Hung(Child);

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
fn while_a_driver_hangs_the_first_signal_ends_the_run_and_nothing_is_claimed() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    let library = driver.join("libcuda.so.1");
    let library = library.to_str().expect("text");
    let mut probing = bin("gpu-embed");
    probing.args(["--probe", "--out"]);
    probing.arg(case.path("batch-size.json"));
    probing.arg("--model").arg(&case.model);
    probing.env("LD_LIBRARY_PATH", &driver);
    for mut hangs in [embed(&case, &driver, "auto", ""), probing] {
        let before = all(case.folder.path());
        let hangs = hangs.env("FAKE_STATUS", "hang");
        let mut hung = Hung(hangs.spawn().expect("spawn"));
        let child = &mut hung.0;
        let maps = format!("/proc/{}/maps", child.id());
        while !fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(library)) {
            assert!(child.try_wait().expect("wait").is_none(), "it ended");
            sleep(Duration::from_millis(10));
        }
        // From the loaded library into its function.
        sleep(Duration::from_millis(300));
        assert_eq!(all(case.folder.path()), before);
        send(child, SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(10);
        while child.try_wait().expect("wait").is_none() {
            assert!(Instant::now() < deadline, "the first signal is ignored");
            sleep(Duration::from_millis(10));
        }
        assert_eq!(child.wait().expect("wait").signal(), Some(SIGTERM));
    }
}

#[test]
fn a_driver_that_aborts_has_a_line_too() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    let line = "gpu-embed: device 'auto': the NVIDIA driver does not work: it aborts; --device cpu computes on the CPU";
    let mut aborts = embed(&case, &driver, "auto", "");
    aborts.env("FAKE_STATUS", "abort");
    assert_fails(aborts, 69, line);
}

/// The program with libtorch for CUDA and without the libraries that it needs, as links in the layout of an installation.
fn without_cuda_libraries(folder: &Path) -> PathBuf {
    let libtorch = Path::new(env!("LIBTORCH"));
    let installed = folder.join("lib/plmkit");
    let link = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().expect("folder")).expect("folder");
        std::os::unix::fs::symlink(from, to).expect("link");
    };
    for entry in fs::read_dir(libtorch.join("lib")).expect("libtorch") {
        let entry = entry.expect("libtorch");
        link(
            &entry.path(),
            installed.join("torch/lib").join(entry.file_name()),
        );
    }
    for needed in ["libcudart.so.13", "libcupti.so.13"] {
        let needed = Path::new("nvidia/cu13/lib").join(needed);
        link(&libtorch.join("..").join(&needed), installed.join(needed));
    }
    let program = folder.join("bin/gpu-embed");
    fs::create_dir(folder.join("bin")).expect("folder");
    fs::copy(common::program("gpu-embed"), &program).expect("copy");
    program
}

#[test]
fn without_libraries_for_a_gpu_the_line_names_one_and_what_installs_it() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    let program = without_cuda_libraries(folder.path());
    for (device, gpus, named) in [
        (
            "cuda:1",
            "NVIDIA H100=9.0,NVIDIA A100=8.0",
            "device 'cuda:1', NVIDIA A100, ",
        ),
        // Each worker says it, and the run once.
        ("all", "NVIDIA H100=9.0,NVIDIA A100=8.0", "NVIDIA H100, "),
        ("auto", "NVIDIA H100=9.0", "device 'auto', NVIDIA H100, "),
        // The first that can be used.
        (
            "auto",
            "Tesla P40=6.1,NVIDIA A100=8.0",
            "device 'auto', NVIDIA A100, ",
        ),
    ] {
        let mut embed = embed_by(Command::new(&program), &case, &driver, device, gpus);
        let output = embed.output().expect("run");
        assert_failed(
            &output,
            69,
            &format!("{named}needs libtorch for CUDA, which cannot be loaded: lib"),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = ": cannot open shared object file: No such file or directory; ";
        let (library, remedy) = said.trim_end().rsplit_once(reason).expect(reason);
        assert!(library.contains(".so."), "{said}");
        assert!(
            remedy.contains("torch 2.11.0") || remedy.contains("make setup GPU=1 install"),
            "{said}"
        );
        assert!(
            remedy.contains("--device cpu computes on the CPU"),
            "{said}"
        );
    }
    run(&mut embed_by(
        Command::new(&program),
        &case,
        &driver,
        "cpu",
        "NVIDIA H100=9.0",
    ));
    let on_cpu = fs::read(case.path("e.parquet")).expect("output");
    assert!(on_cpu == case.undisturbed());
}

#[test]
fn auto_is_the_cpu_only_where_no_gpu_can_be_used_and_says_so() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("temp folder");
    let driver = fake_driver(folder.path());
    for (gpus, why) in [
        (
            "",
            "the NVIDIA driver shows no GPU to this process: computing on the CPU",
        ),
        (
            "Tesla P40=6.1",
            "warning: Tesla P40 has compute capability 6.1, and libtorch needs at least 7.5: computing on the CPU",
        ),
    ] {
        let said = run(embed(&case, &driver, "auto", gpus).arg("--force"));
        assert_eq!(said.matches("on the CPU").count(), 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
    let output = embed(&case, &driver, "auto", "NVIDIA H100=9.0")
        .env("FAKE_STATUS", "803")
        .output();
    let line = "device 'auto': the NVIDIA driver does not work: cuInit: system has unsupported display driver";
    assert_failed(&output.expect("run"), 69, line);

    // What is left of a driver in some images of containers.
    fs::write(folder.path().join("libcuda.so.1"), "").expect("write");
    for device in ["auto", "cuda", "all"] {
        let output = embed(&case, &driver, device, "").output().expect("run");
        assert_failed(&output, 69, "the NVIDIA driver does not work: cannot load ");
        assert_failed(
            &output,
            69,
            "/libcuda.so.1: file too short; --device cpu computes on the CPU",
        );
    }
}

#[test]
fn without_a_driver_the_line_says_so_and_auto_is_the_cpu() {
    let case = Case::new();
    let none = "this machine has no";
    let words =
        "(cannot load libcuda.so.1: cannot open shared object file: No such file or directory)";
    for device in ["cuda", "all"] {
        let output = embed(&case, Path::new("/"), device, "")
            .output()
            .expect("run");
        if !String::from_utf8_lossy(&output.stderr).contains("this machine has none (") {
            eprintln!("SKIPPED: this machine has a driver");
            return;
        }
        assert_failed(
            &output,
            69,
            &format!("needs an NVIDIA driver, and this machine has none {words}"),
        );
    }
    let said = run(&mut embed(&case, Path::new("/"), "auto", ""));
    assert_eq!(said.matches(none).count(), 1, "{said}");
    assert!(
        said.contains(&format!(
            "{none} NVIDIA driver {words}: computing on the CPU"
        )),
        "{said}"
    );
}

#[test]
fn one_worker_for_each_gpu_and_no_other_number() {
    let case = Case::new();
    let mut embed = embed(&case, Path::new("/"), "all", "");
    assert_fails(
        embed.args(["--workers", "2"]),
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
    assert_fails(
        probe().args(["--quiet", "--inject", "out-of-memory-above=1000"]),
        75,
        "not even one sequence of 1022 residues fits into the memory of cpu",
    );
    let output = probe().arg("batches.arrow").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn on_a_cpu_nothing_is_measured_and_the_default_stays() {
    let folder = tempfile::tempdir().expect("temp folder");
    let kept = folder.path().join("batch-size.json");
    for _ in 0..2 {
        let output = probe().arg("--out").arg(&kept).output().expect("run");
        assert_eq!(output.stdout, b"16384\n");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cpu: nothing is measured"), "{said}");
        assert!(!said.contains("already measured"), "{said}");
    }
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
    assert_fails(&mut pack, 65, "damaged or altered");
    pack.args(["--max-batch-tokens", "5"]);
    assert_eq!(pack.output().expect("run").status.code(), Some(2));
    assert!(size(&["--force"]).status.success());
}
