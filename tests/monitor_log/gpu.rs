//! GPUs, by way of a library that stands in for the driver's.

use std::time::Duration;

use plmkit_logs::GpuSample;
use plmkit_telemetry::{Sampler, Sources};

use crate::case::{Case, text};

const GPUS: usize = 4;

#[test]
fn each_field_of_each_gpu_stands_for_itself() {
    let case = Case::with_gpus();
    let output = case.wrap("sleep 0.3").output().unwrap();
    let samples = case.samples("gpu.csv");
    assert!(samples.len() >= 6 * GPUS && samples.len().is_multiple_of(GPUS));
    let moments: Vec<&[GpuSample]> = samples.chunks(GPUS).collect();
    for (number, moment) in moments.iter().enumerate() {
        let [full, little, lost, scripted] = moment else {
            panic!("{moment:?}")
        };
        let host = |sample: &GpuSample| GpuSample {
            index: lost.index,
            uuid: lost.uuid.clone(),
            name: lost.name.clone(),
            ..sample.clone()
        };
        // Nothing is known of a GPU that is lost but its names, and the host.
        let mut expected = GpuSample::at(lost.timestamp);
        expected.host_cpu_util = full.host_cpu_util;
        expected.host_mem_used_mib = full.host_mem_used_mib;
        expected.host_mem_total_mib = full.host_mem_total_mib;
        expected.host_disk_read_mib_s = full.host_disk_read_mib_s;
        expected.host_disk_write_mib_s = full.host_disk_write_mib_s;
        expected.host_disk_free_mib = full.host_disk_free_mib;
        (expected.boot_id, expected.boot_s) = (full.boot_id.clone(), full.boot_s);
        assert_eq!(*lost, host(&expected));

        assert_eq!(full.name.as_deref(), Some("Fake, 0"));
        assert_eq!((full.gpu_util, full.mem_util), (Some(97), Some(40)));
        assert_eq!(
            (full.mem_used_mib, full.mem_total_mib),
            (Some(10240), Some(81920))
        );
        assert_eq!(
            (full.power_w, full.power_limit_w),
            (Some(250.5), Some(300.0))
        );
        assert_eq!(
            (full.sm_clock_mhz, full.mem_clock_mhz),
            (Some(1980), Some(2619))
        );
        assert_eq!(
            (full.ecc_corrected, full.ecc_uncorrected),
            (Some(7), Some(1))
        );
        assert_eq!(
            full.throttle.as_ref().unwrap().to_string(),
            "sw_power_cap+hw_slowdown"
        );
        // The performance monitors count between two moments.
        let between = |value: f64| (number > 0).then_some(value);
        assert_eq!(
            [full.sm_active, full.tensor_active, full.dram_active],
            [between(81.5), between(63.3), between(32.0)]
        );
        assert_eq!(
            (full.pcie_rx_mib_s, full.pcie_tx_mib_s),
            (between(200.0), between(100.0))
        );
        let processes = full.processes.as_ref().unwrap().to_string();
        // The driver's buffer of samples by process is read once.
        let expected = ["4711:5120:88;4712::", "4711:5120:;4712::"][usize::from(number > 0)];
        assert_eq!(processes, expected);

        assert_eq!(little.index, Some(1));
        assert_eq!(
            (little.gpu_util, little.mem_util, little.power_w),
            (None, None, None)
        );
        assert_eq!(
            (little.energy_j, little.ecc_uncorrected, little.sm_active),
            (None, None, None)
        );
        assert_eq!(little.processes.as_ref().unwrap().to_string(), "none");
        assert_eq!(little.throttle.as_ref().unwrap().to_string(), "none");

        let step = number as u64 + 1;
        assert_eq!(scripted.gpu_util, Some(10 * step.min(10) as u32));
        assert_eq!(
            scripted.mem_used_mib,
            Some(1024 * if step < 5 { 10 * step } else { 78 })
        );
        assert_eq!(scripted.throttle.as_ref().unwrap().active(), step >= 5);
        assert_eq!(
            (scripted.pcie_rx_mib_s, scripted.pcie_tx_mib_s),
            (Some(4.0), Some(2.0))
        );
    }
    // 250 W by the counter.
    let energy = |at: usize| {
        (
            moments[at][0].energy_j.unwrap(),
            moments[at][0].boot_s.unwrap(),
        )
    };
    let ((first_j, first_s), (last_j, last_s)) = (energy(0), energy(moments.len() - 1));
    let power = (last_j - first_j) / (last_s - first_s);
    assert!((200.0..300.0).contains(&power), "{power} W");

    let stderr = text(&output.stderr);
    for once in [
        "gpu 1: gpu_util is not available",
        "gpu 1: power_w is not available",
        "gpu 3: energy_j is not available",
        "warning: gpu 2 is lost",
        "warning: gpu 3: 97.5 % of device memory is in use, 79872 of 81920 MiB; expected at most 95 %",
    ] {
        assert_eq!(stderr.matches(once).count(), 1, "{once}: {stderr}");
    }
}

#[test]
fn memory_is_warned_of_from_the_share_that_is_asked_for() {
    let case = Case::with_gpus();
    let warned = |percent: &str| {
        let command =
            format!("record --out gpu.csv --interval 20ms --memory-warning {percent} -- sleep 0.2");
        text(&case.run(&command).stderr)
            .matches("of device memory")
            .count()
    };
    // GPUs 0, 1 and 3: 12.5 %, 13.75 % and up to 97.5 %.
    assert_eq!(
        [warned("98"), warned("90"), warned("13"), warned("12.5")],
        [0, 1, 2, 2]
    );
    for wrong in ["0", "101", "much"] {
        let output = case.run(&format!(
            "record --out gpu.csv --memory-warning {wrong} -- true"
        ));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn processes_that_are_not_the_commands_own_are_foreign() {
    let case = Case::with_gpus();
    let mut foreign = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let script = format!(
        "sleep 60 & echo $$ $! {} > pids; sleep 0.2; kill $!",
        foreign.id()
    );
    case.write("pids", "");
    let pids = case.path("pids");
    assert!(
        case.wrap(&script)
            .env("FAKE_NVML_PIDS", pids)
            .status()
            .unwrap()
            .success()
    );
    foreign.kill().unwrap();
    foreign.wait().unwrap();
    let last = case.samples("gpu.csv");
    let seen = |sample: &&GpuSample| {
        sample
            .processes
            .as_ref()
            .is_some_and(|all| all.0.len() == 3)
    };
    let seen: Vec<_> = last
        .iter()
        .filter(seen)
        .map(|sample| sample.foreign_processes)
        .collect();
    assert!(seen.contains(&Some(1)), "{seen:?}");
    assert!(!seen.contains(&Some(2)), "{seen:?}");
}

#[test]
fn top_has_a_line_for_each_gpu() {
    let output = Case::with_gpus().run("top --once");
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "gpu 0  Fake, 0  util 97 %  mem 10240/81920 MiB  61 C  251/300 W  1980 MHz  \
             throttle sw_power_cap+hw_slowdown  processes 2",
            "gpu 1  Fake, 1  util - %  mem 11264/81920 MiB  62 C  -/300 W  1980 MHz  throttle none  processes 0",
            "gpu 2  Fake, 2  util - %  mem -/- MiB  - C  -/- W  - MHz  throttle -  processes -",
            "gpu 3  Fake, 3  util 20 %  mem 20480/81920 MiB  64 C  140/300 W  1980 MHz  throttle none  processes 2",
        ]
    );
}

#[test]
fn what_a_command_leaves_in_the_background_is_its_own() {
    let case = Case::with_gpus();
    // Told to the driver only when its parent is gone.
    let script = "sh -c 'sleep 60 & echo $! > pid'; mv pid pids; sleep 0.3; kill $(cat pids)";
    let pids = case.path("pids");
    let mut command = case.wrap(script);
    assert!(
        command
            .env("FAKE_NVML_PIDS", pids)
            .status()
            .unwrap()
            .success()
    );
    let samples = case.samples("gpu.csv");
    let seen = samples.iter().filter(|sample| {
        sample
            .processes
            .as_ref()
            .is_some_and(|all| all.0.len() == 1)
    });
    let foreign: Vec<_> = seen.filter_map(|sample| sample.foreign_processes).collect();
    assert!(
        foreign.len() > 3 && foreign.iter().all(|&count| count == 0),
        "{foreign:?}"
    );
}

#[test]
fn a_driver_that_counts_too_much_makes_no_log_that_cannot_be_read() {
    let case = Case::with_gpus();
    let mut command = case.wrap("true");
    assert!(
        command
            .env("FAKE_NVML_LOAD", "150")
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(case.samples("gpu.csv")[0].gpu_util, Some(100));
}

#[test]
fn a_driver_that_comes_later_is_found() {
    let case = Case::with_gpus();
    let library = case.path("driver/libnvidia-ml.so.1");
    let sampler = |driver_retry| {
        Sampler::open(&Sources {
            nvml: Some(case.path("late.so")),
            driver_retry,
            disk: None,
            command: None,
        })
    };
    let (mut eager, mut lazy) = (sampler(Duration::ZERO), sampler(Duration::from_mins(1)));
    assert_eq!(eager.sample().len(), 1);
    std::fs::copy(library, case.path("late.so")).unwrap();
    assert_eq!((eager.sample().len(), lazy.sample().len()), (GPUS, 1));
}
