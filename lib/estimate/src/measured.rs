//! Runs that were measured.

use plmkit_contract::ModelShape;
use serde_json::Value;

/// A measured run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The name of its devices.
    pub device: String,
    /// The type of the computation.
    pub dtype: String,
    /// Floating-point operations of its batches.
    pub flops: f64,
    /// Seconds that it computed, summed over its devices. All threads of a CPU are one device.
    pub device_s: f64,
}

/// No device computes as fast.
const MAX_FLOPS_PER_S: f64 = 1e18;

/// Returns the runs in a report of `monitor-log report`. The error describes what the report lacks, or that a run was of another
/// model than one of `shape`.
pub fn measured(report: &Value, shape: &ModelShape) -> Result<Vec<Measured>, String> {
    let runs = report["events"]["runs"].as_array();
    let runs = runs.ok_or("expected a report with run events, found none")?;
    let runs = runs.iter().map(|run| {
        let named = |what| format!("run {}: {what}", run["run"].as_str().unwrap_or_default());
        let elapsed_s = run["elapsed_s"].as_f64().filter(|&seconds| seconds > 0.0);
        let known = run["efficiency"]["flops"].as_f64().zip(elapsed_s);
        let (flops, elapsed_s) =
            known.ok_or_else(|| named("its operations or its time are unknown".to_owned()))?;
        check_model(run, flops, shape).map_err(named)?;
        let (device, count) = device(run);
        // An attempt computed on its own GPUs.
        let attempts = run["by_attempt"].as_array().into_iter().flatten();
        let times_s = attempts.map(|attempt| {
            let gpus = attempt["gpu_uuids"].as_array().map_or(count, Vec::len);
            attempt["elapsed_s"].as_f64().unwrap_or(0.0) * gpus as f64
        });
        let device_s = Some(times_s.sum()).filter(|&device_s: &f64| device_s > 0.0);
        let device_s = device_s.unwrap_or(elapsed_s * count as f64);
        let rate = flops / device_s;
        if !(1.0..=MAX_FLOPS_PER_S).contains(&rate) {
            let what = "its rate is impossible; expected 1 to 1e18 operations a second";
            return Err(named(format!("{what}, found {rate:e}")));
        }
        Ok(Measured {
            device,
            dtype: run["dtype"].as_str().unwrap_or("?").to_owned(),
            flops,
            device_s,
        })
    });
    runs.collect()
}

/// Sums up the runs of the same devices and type.
pub(super) fn by_device(runs: &[Measured]) -> Vec<Measured> {
    let mut sums: Vec<Measured> = Vec::new();
    for run in runs {
        let same = |sum: &&mut Measured| (&sum.device, &sum.dtype) == (&run.device, &run.dtype);
        match sums.iter_mut().find(same) {
            Some(sum) => {
                sum.flops += run.flops;
                sum.device_s += run.device_s;
            }
            None => sums.push(run.clone()),
        }
    }
    sums
}

/// Checks that the operations are those of the model: what exceeds those of the tokens is attention, and a token attends to
/// at least as many tokens as a sequence has on average, and to at most as many as the longest has.
fn check_model(run: &Value, flops: f64, shape: &ModelShape) -> Result<(), String> {
    let tokens = run["tokens"].as_f64().unwrap_or(0.0);
    let attention = flops - tokens * shape.flops_per_token() as f64;
    let attended = attention / (tokens * shape.flops_per_pair() as f64);
    let least = run["mean_length"].as_f64().unwrap_or(0.0);
    let most = run["longest"].as_f64().unwrap_or(f64::MAX);
    if attended >= least * 0.999 && attended <= most * 1.001 {
        return Ok(());
    }
    let model = run["model"].as_str().unwrap_or("unknown");
    Err(format!(
        "its operations are not those of this model: measured was {model}"
    ))
}

/// Returns the name of the devices of a run, and how many there are.
fn device(run: &Value) -> (String, usize) {
    let names = run["gpu_names"].as_array().map_or(&[][..], Vec::as_slice);
    let count = run["gpus"].as_array().map_or(names.len(), Vec::len).max(1);
    let host = run["host"].as_str().unwrap_or("this machine");
    let device = run["device"].as_str().unwrap_or("unknown device");
    match names.first().and_then(Value::as_str) {
        Some(name) => (name.to_owned(), count),
        None if device == "cpu" => {
            let threads = run["threads"].as_u64().unwrap_or(0);
            (format!("cpu of {host}, {threads} threads"), 1)
        }
        None => (device.to_owned(), count),
    }
}
