//! GPUs, by way of a library that stands in for the driver's.

use crate::case::{Case, text};

#[test]
fn each_field_of_each_gpu_stands_for_itself() {
    let case = Case::with_gpus();
    let output = case.wrap("sleep 0.2").output().unwrap();
    let rows = case.rows("gpu.csv");
    assert!(rows.len() >= 9 && rows.len().is_multiple_of(3), "{rows:?}");
    let gpu = |row: &str| {
        row.split_once("Z,")
            .unwrap()
            .1
            .rsplitn(4, ',')
            .last()
            .unwrap()
            .to_owned()
    };
    for moment in rows.chunks(3) {
        assert_eq!(
            moment.iter().map(|row| gpu(row)).collect::<Vec<_>>(),
            [
                "0,GPU-0,\"Fake, 0\",97,40,10240,81920,61,250.5,300.0,1980,sw_power_cap+hw_slowdown,4711:5120;4712:",
                "1,GPU-1,\"Fake, 1\",,,11264,81920,62,,300.0,1980,none,none",
                "2,GPU-2,\"Fake, 2\",,,,,,,,,,",
            ]
        );
        let host = |row: &str| {
            row.rsplitn(4, ',')
                .take(3)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(
            moment.iter().all(|row| host(row) == host(&moment[0])),
            "one host: {moment:?}"
        );
    }
    let stderr = text(&output.stderr);
    for once in [
        "gpu 1: gpu_util is not available",
        "gpu 1: power_w is not available",
        "warning: gpu 2 is lost",
    ] {
        assert_eq!(stderr.matches(once).count(), 1, "{once}: {stderr}");
    }
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
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
        ]
    );
}

#[test]
fn what_is_recorded_can_be_reported() {
    let case = Case::with_gpus();
    assert!(case.wrap("sleep 0.8").status().unwrap().success());
    assert!(
        case.run("report --gpu gpu.csv --out report.json")
            .status
            .success()
    );
    let report: serde_json::Value = serde_json::from_str(&case.read("report.json")).unwrap();
    let gpus = report["samples"]["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 3);
    assert_eq!(gpus[0]["mean_utilization"], 0.97);
    assert_eq!(gpus[0]["throttled_samples"], gpus[0]["samples"]);
    assert_eq!(gpus[0]["bottleneck"], "none");
    assert!(gpus[1]["mean_utilization"].is_null() && gpus[1]["bottleneck"].is_null());
    assert!(report["events"].is_null());
}
