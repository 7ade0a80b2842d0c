//! A driver that is restarted, hangs, has MIG instances, or reports Xid errors.

use std::fs;
use std::io::read_to_string;
use std::process::{Child, Stdio};

use plmkit_logs::GpuSample;

use crate::case::{Case, assert_contains, kill, wait_until};
use crate::export::Exporter;

/// Starts `monitor-log record`, with the files `gone`, `hang` and `xid` of the fake driver.
fn record(case: &Case) -> Child {
    let mut command = case.command("record --out gpu.csv --interval 20ms");
    for name in ["gone", "hang", "xid"] {
        command.env(
            format!("FAKE_NVML_{}", name.to_uppercase()),
            case.path(name),
        );
    }
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends a recording and returns its standard error.
fn end(mut child: Child) -> String {
    kill("TERM", child.id());
    child.wait().unwrap();
    read_to_string(child.stderr.take().unwrap()).unwrap()
}

/// Waits until the last row of a GPU fulfils a condition.
fn wait_for_row(case: &Case, index: u32, is_so: impl Fn(&GpuSample) -> bool) {
    wait_until(|| {
        if !case.path("gpu.csv").exists() {
            return false;
        }
        let samples = case.samples("gpu.csv");
        let last = samples.iter().rfind(|row| row.index == Some(index));
        last.is_some_and(&is_so)
    });
}

#[test]
fn a_restarted_driver_is_opened_again_each_time() {
    let case = Case::with_gpus();
    let child = record(&case);
    for _ in 0..2 {
        wait_for_row(&case, 0, |row| row.gpu_util == Some(97));
        case.write("gone", "");
        // The names stay, so that the log says who is missing.
        wait_for_row(&case, 0, |row| !row.has_values() && row.uuid.is_some());
        fs::remove_file(case.path("gone")).unwrap();
    }
    wait_for_row(&case, 0, |row| row.gpu_util == Some(97));
    let stderr = end(child);
    for message in [
        "the driver has gone: opening it again",
        "the driver answers again",
    ] {
        assert_eq!(stderr.matches(message).count(), 2, "{stderr}");
    }
    let lost = "gpu 2 is lost";
    assert_eq!(stderr.matches(lost).count(), 1, "{stderr}");
}

#[test]
fn a_gpu_that_hangs_costs_the_values_of_all_until_it_answers() {
    let case = Case::with_gpus();
    let child = record(&case);
    wait_for_row(&case, 3, GpuSample::has_values);
    case.write("hang", "3");
    wait_for_row(&case, 3, |row| !row.has_values());
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id()));
        tasks.unwrap().count()
    };
    let before = (case.samples("gpu.csv").len(), threads());
    wait_until(|| case.samples("gpu.csv").len() > before.0 + 80);
    assert_eq!(threads(), before.1, "abandoned calls pile up");
    let samples = case.samples("gpu.csv");
    for row in &samples[before.0..] {
        assert_eq!(row.uuid, row.index.map(|index| format!("GPU-{index}")));
        assert!(!row.has_values(), "{row:?}");
    }
    fs::remove_file(case.path("hang")).unwrap();
    wait_for_row(&case, 3, GpuSample::has_values);
    let stderr = end(child);
    for message in [
        "the driver does not answer; its values are missing until it does",
        "the driver answers again",
        "intervals have no sample",
    ] {
        assert_eq!(stderr.matches(message).count(), 1, "{stderr}");
    }
}

#[test]
fn mig_instances_have_rows_with_memory_and_join_with_their_run() {
    let case = Case::with_gpus();
    let mut command = case.wrap("sleep 0.3");
    assert!(
        command
            .env("FAKE_NVML_MIG", "1")
            .status()
            .unwrap()
            .success()
    );
    let samples = case.samples("gpu.csv");
    let uuids = samples
        .iter()
        .take(6)
        .map(|row| row.uuid.as_deref().unwrap());
    let uuids: Vec<&str> = uuids.collect();
    assert_eq!(
        uuids,
        ["GPU-0", "MIG-0", "MIG-2", "GPU-1", "GPU-2", "GPU-3"]
    );
    let instance = &samples[2];
    assert_eq!(instance.index, Some(0));
    assert_eq!(instance.name.as_deref(), Some("Fake, 0 MIG 1g.10gb"));
    let memory = (instance.mem_used_mib, instance.mem_total_mib);
    assert_eq!(memory, (Some(3 << 10), Some(10 << 10)));
    let unknown = (instance.gpu_util, instance.power_w, instance.energy_j);
    assert_eq!(unknown, (None, None, None));

    // A run on one instance.
    let (boot, from) = samples[0].boot_time().unwrap();
    let event = |kind: &str, boot_s: f64, rest: &str| {
        format!(
            "{{\"type\":\"{kind}\",\"run\":\"r\",\"boot_id\":\"{boot}\",\"boot_s\":{boot_s}{rest}}}\n"
        )
    };
    let started = event("run", from, ",\"gpu_uuids\":[\"MIG-2\"]");
    let done = event(
        "done",
        from + 10.0,
        ",\"sequences\":1,\"tokens\":9,\"residues\":7,\"elapsed_s\":10.0,\"outcome\":\"done\"",
    );
    case.write("events.jsonl", &(started + &done));
    let report = case.report("--events events.jsonl --gpu gpu.csv");
    let gpus = report["gpus"].as_array().unwrap();
    let used = gpus.iter().filter(|gpu| gpu["in_run"] == true);
    let used: Vec<_> = used
        .map(|gpu| (&gpu["uuid"], &gpu["values"]["mem_used_mib"]["max"]))
        .collect();
    assert_eq!(used, [(&"MIG-2".into(), &3072.0.into())], "{report}");
}

#[test]
fn xid_errors_are_counted_by_gpu_and_the_last_one_is_named() {
    let case = Case::with_gpus();
    let child = record(&case);
    wait_for_row(&case, 0, |row| {
        (row.xid_errors, row.last_xid) == (Some(0), None)
    });
    case.write("xid", "0 63\n2 79\n0 48\n");
    wait_for_row(&case, 0, |row| {
        (row.xid_errors, row.last_xid) == (Some(2), Some(48))
    });
    // It fell off the bus, which is what its last event says.
    wait_for_row(&case, 2, |row| {
        (row.xid_errors, row.last_xid) == (Some(1), Some(79))
    });
    wait_for_row(&case, 3, |row| row.xid_errors == Some(0));
    end(child);
}

#[test]
fn eight_gpus_are_read_and_a_driver_that_goes_is_not_up() {
    let case = Case::with_gpus();
    case.write("gone", "");
    let gone = case.path("gone");
    let metrics = |name, value: &str| {
        Exporter::with(&case, "", &[("FAKE_NVML_GPUS", "8"), (name, value)]).metrics()
    };
    let up = metrics("FAKE_NVML_NOTHING", "");
    assert_contains(&up, "plmkit_exporter_driver_up 1\n");
    assert_eq!(
        up.matches("plmkit_gpu_utilization_ratio{").count(),
        6,
        "{up}"
    );
    let down = metrics("FAKE_NVML_GONE", gone.to_str().unwrap());
    assert_contains(&down, "plmkit_exporter_driver_up 0\n");
}
