//! GPUs of a library that replaces the driver's.

use std::time::Duration;

use plmkit_logs::{GpuProcess, GpuSample, Processes};
use plmkit_telemetry::Sampler;
use serde_json::Value;

use crate::case::{Case, text};

const GPUS: usize = 4;

/// A GPU without values, at the time of `moment`.
fn gpu(index: u32, moment: &GpuSample) -> GpuSample {
    GpuSample {
        index: Some(index),
        uuid: Some(format!("GPU-{index}")),
        name: Some(format!("Fake, {index}")),
        boot_id: moment.boot_id.clone(),
        boot_s: moment.boot_s,
        interval_s: Some(0.02),
        ..GpuSample::at(moment.timestamp)
    }
}

#[test]
fn each_field_of_each_gpu_is_read() {
    let case = Case::with_gpus();
    let output = case.wrap("sleep 0.3").output().unwrap();
    let samples = case.samples("gpu.csv");
    assert!(samples.len() >= 6 * GPUS && samples.len().is_multiple_of(GPUS));
    let moments: Vec<&[GpuSample]> = samples.chunks(GPUS).collect();
    for (number, moment) in moments.iter().enumerate() {
        let [full, little, lost, scripted] = moment else {
            panic!("{moment:?}")
        };
        // A lost GPU has only its names, and what the driver's events tell.
        let expected = GpuSample {
            xid_errors: Some(0),
            ..gpu(2, full)
        };
        assert_eq!(*lost, expected);

        // The driver's buffer of samples by process is read once.
        let known = GpuProcess {
            pid: 4711,
            mem_used_mib: Some(5120),
            gpu_util: (number == 0).then_some(88),
        };
        let unknown = GpuProcess {
            pid: 4712,
            ..GpuProcess::default()
        };
        let expected = GpuSample {
            gpu_util: Some(97),
            mem_util: Some(40),
            mem_used_mib: Some(10240),
            mem_total_mib: Some(81920),
            temperature_c: Some(61),
            power_w: Some(250.5),
            power_limit_w: Some(300.0),
            sm_clock_mhz: Some(1980),
            mem_clock_mhz: Some(2619),
            throttle: Some("sw_power_cap+hw_slowdown".parse().unwrap()),
            processes: Some(Processes(vec![known, unknown])),
            energy_j: full.energy_j,
            ecc_corrected: Some(7),
            ecc_uncorrected: Some(1),
            mem_temperature_c: Some(88),
            temperature_limit_c: Some(90),
            mem_temperature_limit_c: Some(95),
            xid_errors: Some(0),
            ..gpu(0, full)
        };
        assert_eq!(*full, expected);

        let unknown = (
            little.gpu_util,
            little.mem_util,
            little.power_w,
            little.energy_j,
        );
        assert_eq!(unknown, (None, None, None, None));
        assert_eq!(little.ecc_uncorrected, None);
        assert_eq!(
            (little.xid_errors, little.temperature_limit_c),
            (None, None)
        );
        assert_eq!(little.processes, Some(Processes::default()));
        assert_eq!(little.throttle.as_ref().unwrap().to_string(), "none");

        let step = number as u64 + 1;
        assert_eq!(scripted.gpu_util, Some(10 * step.min(10) as u32));
        let gib = if step < 5 { 10 * step } else { 78 };
        assert_eq!(scripted.mem_used_mib, Some(1024 * gib));
        assert_eq!(scripted.throttle.as_ref().unwrap().active(), step >= 5);
        assert_eq!(scripted.mem_temperature_c, None);
        assert_eq!(scripted.temperature_limit_c, Some(89));
    }
    // 250 W by the counter.
    let [first, last] = [moments[0], moments[moments.len() - 1]].map(|moment| &moment[0]);
    let power = (last.energy_j.unwrap() - first.energy_j.unwrap())
        / (last.boot_s.unwrap() - first.boot_s.unwrap());
    assert!((200.0..300.0).contains(&power), "{power} W");

    let stderr = text(&output.stderr);
    for once in [
        "gpu 1: gpu_util is not available",
        "gpu 1: power_w is not available",
        "gpu 3: energy_j is not available",
        "warning: gpu 2 is lost",
    ] {
        assert_eq!(stderr.matches(once).count(), 1, "{once}: {stderr}");
    }
}

#[test]
fn a_utilisation_above_100_is_capped_so_that_the_log_can_be_read() {
    let case = Case::with_gpus();
    let mut command = case.wrap("true");
    let status = command.env("FAKE_NVML_LOAD", "150").status();
    assert!(status.unwrap().success());
    assert_eq!(case.samples("gpu.csv")[0].gpu_util, Some(100));
}

#[test]
fn power_that_no_gpu_draws_is_unknown() {
    for (milliwatts, expected) in [("3000000", Some(3000.0)), ("4294967295", None)] {
        let case = Case::with_gpus();
        let mut command = case.wrap("true");
        let status = command.env("FAKE_NVML_POWER", milliwatts).status();
        assert!(status.unwrap().success());
        assert_eq!(case.samples("gpu.csv")[0].power_w, expected);
    }
}

#[test]
fn a_driver_that_is_installed_later_is_found() {
    let case = Case::with_gpus();
    let path = case.path("late.so");
    let mut sampler = Sampler::open(Some(&path));
    assert_eq!(sampler.sample().len(), 0);
    let library = case.path("driver/libnvidia-ml.so.1");
    std::fs::copy(library, &path).unwrap();
    // It is not looked for with each sample.
    assert_eq!(sampler.sample().len(), 0);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(sampler.sample().len(), GPUS);
}

#[test]
fn many_processes_are_read_unless_the_driver_writes_beyond_their_records() {
    let case = Case::with_gpus();
    let read = |driver: &str, count: u32| {
        let pids: Vec<String> = (1..=count).map(|pid| pid.to_string()).collect();
        case.write("pids", &pids.join("\n"));
        let mut command = case.command("top --json");
        let environment = [("PIDS", case.path("pids")), ("DRIVER", driver.into())];
        command.envs(environment.map(|(name, value)| (format!("FAKE_NVML_{name}"), value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let top: Value = serde_json::from_slice(&output.stdout).unwrap();
        (top["samples"][0]["processes"].clone(), text(&output.stderr))
    };
    let (many, stderr) = read("580.00", 300);
    assert_eq!(many.as_str().unwrap().matches("pid").count(), 300);
    assert!(!stderr.contains("gpu 0: processes"), "{stderr}");
    // Of short records in longer ones, the first is right.
    let first = r#"[{"pid":1,"mem_used_mib":5120,"gpu_util":88}]"#;
    assert_eq!(read("535.86", 2).0, first);
    let (none, stderr) = read("535.86", 300);
    assert_eq!(none, Value::Null);
    assert_eq!(
        stderr.matches("gpu 0: processes is not available").count(),
        1,
        "{stderr}"
    );
}

#[test]
fn without_the_third_version_of_processes_a_driver_gives_everything_else() {
    let case = Case::with_driver(&["-DWITHOUT_V3"]);
    let output = case.run("top --json");
    let top: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = &top["samples"][0];
    assert_eq!(
        (&gpu["gpu_util"], &gpu["mem_used_mib"], &gpu["processes"]),
        (&97.into(), &10240.into(), &Value::Null)
    );
    let stderr = text(&output.stderr);
    let message = "gpu 0: processes is not available";
    assert_eq!(stderr.matches(message).count(), 1, "{stderr}");
}
