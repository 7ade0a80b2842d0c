//! `gpu-embed --device` names what is missing for a GPU in one line, and `--probe` measures a batch size.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::case::{Case, SIGTERM, send};
use crate::common::{self, all, assert_failed, assert_fails, bin, run, test_data};
use crate::{assert_has, ends, stderr, wait_until};

pub(crate) const H100: &str = "NVIDIA H100=9.0";
const P40: &str = "Tesla P40=6.1";
pub(crate) const BOTH: &str = "NVIDIA H100=9.0,NVIDIA A100=8.0";
/// What a driver says with `FAKE_STATUS=803`.
const BROKEN: &str =
    "the NVIDIA driver does not work: cuInit: system has unsupported display driver";

/// A case, and a folder with a driver that shows the GPUs in `FAKE_GPUS`.
pub(crate) fn with_driver() -> (Case, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("temp folder");
    fake_driver(folder.path());
    (Case::new(), folder)
}

fn fake_driver(folder: &Path) {
    let library = folder.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_cuda.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    run(compiler.arg(&library).arg(source));
    // A toolkit's folder of stubs has this file, which is no driver.
    fs::write(folder.join("libcuda.so"), "").expect("write");
}

/// A run on `device` of a machine with such a driver.
fn embed(case: &Case, driver: &Path, device: &str, gpus: &str) -> Command {
    embed_by(bin("gpu-embed"), case, driver, device, gpus)
}

/// The same by another copy of the program.
pub(crate) fn embed_by(
    mut command: Command,
    case: &Case,
    driver: &Path,
    device: &str,
    gpus: &str,
) -> Command {
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
fn each_thing_that_is_missing_for_a_gpu_has_a_message() {
    let (case, driver) = with_driver();
    let old = "Tesla P40, has compute capability 6.1; expected at least 7.5";
    let gpus = "does not exist; found 2 GPUs: NVIDIA H100, NVIDIA A100";
    for (device, gpus, expected) in [
        ("cuda", "", "device 'cuda:0' does not exist; found no GPU"),
        ("cuda:2", BOTH, &format!("device 'cuda:2' {gpus}")),
        ("cuda", P40, &format!("device 'cuda:0', {old}")),
    ] {
        assert_fails(embed(&case, driver.path(), device, gpus), 69, expected);
    }
    let what = "--device all: expected one device; plmkit computes on all";
    assert_fails(embed(&case, driver.path(), "all", BOTH), 2, what);
    let abort = "gpu-embed: device 'auto': the NVIDIA driver does not work: it aborts; --device cpu computes on the CPU";
    for (device, status, expected) in [
        ("cuda", "803", &format!("device 'cuda:0': {BROKEN}")),
        ("auto", "803", &format!("device 'auto': {BROKEN}")),
        ("auto", "abort", &abort.to_owned()),
    ] {
        let mut embed = embed(&case, driver.path(), device, BOTH);
        assert_fails(embed.env("FAKE_STATUS", status), 69, expected);
    }
    let mut set = embed(&case, driver.path(), "cuda", BOTH);
    set.env("FAKE_STATUS", "abort");
    set.env("PYTORCH_CUDA_ALLOC_CONF", "foo");
    let what =
        "it aborts, as libtorch does over a PYTORCH_CUDA_ALLOC_CONF that it cannot read; --device";
    assert_fails(set, 69, what);
    let names = all(case.folder.path());
    let has_output = names.iter().any(|name| name.contains("e.parquet"));
    assert!(!has_output, "{names:?}");
}

#[test]
fn a_driver_that_is_too_old_is_refused_before_anything_is_fetched_or_written() {
    let (case, driver) = with_driver();
    let expected = "NVIDIA H100: libtorch needs an NVIDIA driver for CUDA 13 or newer; found one for CUDA 12.4; ";
    let (batches, proteins) = (case.path("b.arrow"), test_data("proteins.fasta"));
    let folder = tempfile::tempdir().expect("temp folder");
    let (out, cache) = (folder.path().join("new"), folder.path().join("hf"));
    for (program, input) in [("gpu-embed", batches), ("plmkit", proteins)] {
        for device in ["cuda", "auto"] {
            let mut command = bin(program);
            command.arg(&input).arg("--out").arg(&out);
            command.args(["--model", "some/model", "--download", "--device", device]);
            command.env("LD_LIBRARY_PATH", driver.path());
            command.env("FAKE_GPUS", H100).env("FAKE_CUDA", "12040");
            // Nobody answers there: a download would fail otherwise.
            command.env("HF_ENDPOINT", "http://127.0.0.1:9");
            command.env("HF_HOME", &cache);
            assert_fails(command, 69, expected);
            assert!(!cache.exists() && !out.exists());
        }
    }
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
    let (case, driver) = with_driver();
    let library = driver.path().join("libcuda.so.1");
    let library = library.to_str().expect("text");
    let mut probing = bin("gpu-embed");
    probing.args(["--probe", "--out"]);
    probing.arg(case.path("batch-size.json"));
    probing.arg("--model").arg(&case.model);
    probing.env("LD_LIBRARY_PATH", driver.path());
    for mut hangs in [embed(&case, driver.path(), "auto", ""), probing] {
        let before = all(case.folder.path());
        let hangs = hangs.env("FAKE_STATUS", "hang");
        let mut hung = Hung(hangs.spawn().expect("spawn"));
        let child = &mut hung.0;
        let maps = format!("/proc/{}/maps", child.id());
        let is_loaded = || fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(library));
        wait_until(child, is_loaded);
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
fn a_missing_library_for_gpus_is_named_with_a_remedy() {
    let (case, driver) = with_driver();
    let folder = tempfile::tempdir().expect("temp folder");
    let program = common::copied("gpu-embed", folder.path());
    let embed = |device: &str| embed_by(Command::new(&program), &case, driver.path(), device, BOTH);
    let missing = "/libplmkit_cuda.so: no such file or directory; 'make install GPU=1' or pip \
        install 'plmkit[gpu]' brings it, and PLMKIT_CUDA names another; --device cpu computes on the CPU";
    for (device, named) in [
        ("cuda:1", "device 'cuda:1', NVIDIA A100, "),
        ("auto", "device 'auto', NVIDIA H100, "),
    ] {
        let output = embed(device).output().expect("run");
        let what = format!("{named}needs libplmkit_cuda.so, which cannot be loaded: ");
        assert_failed(&output, 69, &what);
        assert_has(&stderr(&output), missing);
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
    let mut by_libtorch = embed("cpu");
    by_libtorch.args(["--kernels", "libtorch"]);
    let what = "--kernels libtorch needs libplmkit_cuda.so, which cannot be loaded: ";
    assert_fails(by_libtorch, 69, what);

    // A library of another version, and one that is another's.
    let library = folder.path().join("other.so");
    for (source, what) in [
        (
            "const char *plmkit_cuda_version(void) { return \"plmkit 0.0.1, interface 1\"; }",
            "interface 4; found that of plmkit 0.0.1, interface 1 in ",
        ),
        ("int other;", "other.so is another library; "),
    ] {
        let code = folder.path().join("other.c");
        fs::write(&code, source).expect("write");
        let mut compiler = Command::new("cc");
        run(compiler.args(["-shared", "-o"]).arg(&library).arg(&code));
        let mut embed = embed("cuda");
        embed.env("PLMKIT_CUDA", &library);
        assert_fails(embed, 69, what);
    }
    run(&mut embed("cpu"));
    let on_cpu = fs::read(case.path("e.parquet")).expect("output");
    assert!(on_cpu == case.undisturbed());
}

#[test]
fn auto_is_the_cpu_only_where_no_gpu_can_be_used_and_says_so() {
    let (case, driver) = with_driver();
    let no_gpu = "the NVIDIA driver shows no GPU to this process: computing on the CPU";
    let too_old = "warning: Tesla P40 has compute capability 6.1, and libtorch needs at least 7.5: computing on the CPU";
    for (gpus, why) in [("", no_gpu), (P40, too_old)] {
        let said = run(embed(&case, driver.path(), "auto", gpus).arg("--force"));
        assert_eq!(said.matches("on the CPU").count(), 1, "{said}");
        assert_has(&said, why);
    }

    // Some images of containers have such a rest of a driver.
    fs::write(driver.path().join("libcuda.so.1"), "").expect("write");
    for device in ["auto", "cuda"] {
        let output = embed(&case, driver.path(), device, "")
            .output()
            .expect("run");
        assert_failed(&output, 69, "the NVIDIA driver does not work: cannot load ");
        let what = "/libcuda.so.1: file too short; --device cpu computes on the CPU";
        assert_failed(&output, 69, what);
    }
}

#[test]
fn without_a_driver_auto_is_the_cpu_and_a_gpu_is_an_error() {
    let case = Case::new();
    let none = "this machine has no";
    let why =
        "(cannot load libcuda.so.1: cannot open shared object file: No such file or directory)";
    let mut on_gpu = embed(&case, Path::new("/"), "cuda", "");
    let output = on_gpu.output().expect("run");
    if !stderr(&output).contains("this machine has none (") {
        eprintln!("SKIPPED: this machine has a driver");
        return;
    }
    let what = format!("needs an NVIDIA driver, and this machine has none {why}");
    assert_failed(&output, 69, &what);
    let said = run(&mut embed(&case, Path::new("/"), "auto", ""));
    assert_eq!(said.matches(none).count(), 1, "{said}");
    let what = format!("{none} NVIDIA driver {why}: computing on the CPU");
    assert_has(&said, &what);
}

fn probe() -> Command {
    let mut command = bin("gpu-embed");
    command.arg("--probe").arg("--model");
    command
        .arg(test_data("model-tiny"))
        .args(["--device", "cpu"]);
    command
}

#[test]
fn a_probe_finds_the_largest_batch_and_recommends_four_fifths_of_it() {
    let folder = tempfile::tempdir().expect("temp folder");
    let events = folder.path().join("events.jsonl");
    let mut probe_21000 = probe();
    probe_21000.args(["--inject", "out-of-memory-above=21000"]);
    let output = probe_21000.arg("--events").arg(&events).output();
    let output = output.expect("run");
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    // 20 sequences of 1,024 tokens.
    assert_eq!(output.stdout, b"16384\n");
    assert_has(&said, "20480 tokens fit at once");
    let event: Value = serde_json::from_slice(&fs::read(&events).expect("events")).expect("JSON");
    assert_eq!(event["type"], "probe");
    assert_eq!(event["largest_tokens"], 20480);
    assert_eq!(event["recommended_tokens"], 16384);
    let (tries, failed) = (event["tries"].as_u64(), event["out_of_memory"].as_u64());
    assert!(tries > failed && failed > Some(0), "{event}");
    // A report accepts the event, which belongs to no run.
    let mut report = bin("monitor-log");
    report.args(["report", "--events"]).arg(&events);
    run(report.arg("--out").arg(folder.path().join("report.json")));

    let mut too_small = probe();
    too_small.args(["--quiet", "--inject", "out-of-memory-above=1000"]);
    let what = "not even one sequence of 1022 residues fits into the memory of cpu";
    assert_fails(too_small, 75, what);
    ends(probe().arg("batches.arrow"), 2);
}

#[test]
fn on_a_cpu_nothing_is_measured_and_the_default_stays() {
    let folder = tempfile::tempdir().expect("temp folder");
    let kept = folder.path().join("batch-size.json");
    for _ in 0..2 {
        let output = probe().arg("--out").arg(&kept).output().expect("run");
        assert_eq!(output.stdout, b"16384\n");
        assert!(!stderr(&output).contains("default batch size"));
        let output = probe().arg("--verbose").arg("--out").arg(&kept).output();
        let said = stderr(&output.expect("run"));
        assert_has(&said, "no GPU to probe; default batch size 16384 tokens");
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
    let first = size(&[]);
    assert_eq!(first.stdout, b"16384\n", "{}", stderr(&first));
    assert_has(&stderr(&first), "20480 tokens fit");
    let kept = fs::read(&path).expect("batch size");
    let read: Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(read["largest_tokens"], 20480);
    assert_eq!(read["max_batch_tokens"], 16384);
    assert_eq!(read["options"]["dtype"], "f32");

    for options in [&[][..], &["--force"]] {
        let again = size(options);
        assert_eq!(again.stdout, b"16384\n");
        let said = stderr(&again);
        assert_has(&said, "already measured");
        assert!(!said.contains("tokens fit\n"), "{said}");
        assert!(kept == fs::read(&path).expect("batch size"));
    }
    let other = size(&["--pool", "max"]);
    let what = "exists and holds other work (columns was [\"mean_4\"] and is now [\"max_4\"]); --force replaces it";
    assert_failed(&other, 73, what);
    let forced = size(&["--pool", "max", "--force"]);
    assert_eq!(forced.stdout, b"16384\n", "{}", stderr(&forced));

    // pack-batches reads the file.
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
    assert!(by_file == packed("by-number.arrow", "--max-batch-tokens", "16384"));

    let text = fs::read_to_string(&path).expect("batch size");
    fs::write(&path, text.replace("16384", "16385")).expect("write");
    let what = "damaged or altered: it does not match its seal; --force replaces it";
    assert_failed(&size(&[]), 65, what);
    let mut pack = bin("pack-batches");
    pack.args(["shard.parquet", "--out", "c.arrow", "--batch-size", file]);
    assert_fails(&mut pack, 65, "damaged or altered");
    ends(pack.args(["--max-batch-tokens", "5"]), 2);
    assert!(size(&["--force"]).status.success());
}
