//! Runs that were measured.

use std::collections::BTreeSet;

use plmkit_contract::ModelShape;
use serde_json::Value;

use super::Lengths;

/// Measured runs, in sums, and the shards that they have not finished.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The shards that no run has finished.
    pub left: Vec<Lengths>,
    /// The names of the devices, each with the type of the computation.
    pub devices: BTreeSet<String>,
    /// Floating-point operations of the batches.
    pub flops: f64,
    /// Seconds of the runs, summed over their devices. All threads of a CPU are one device.
    pub device_s: f64,
}

impl Measured {
    /// Adds the runs of a report of `monitor-log report`. The error describes what the report lacks, or which run was of another
    /// model than one of `shape`, or of an impossible rate.
    pub fn add(&mut self, report: &Value, shape: &ModelShape) -> Result<(), String> {
        let runs = report["events"]["runs"].as_array();
        let runs = runs.filter(|runs| !runs.is_empty());
        for run in runs.ok_or("expected a report with run events, found none")? {
            let named = |what| format!("run {}: {what}", text(&run["run"]));
            self.add_run(run, shape).map_err(named)?;
        }
        Ok(())
    }

    fn add_run(&mut self, run: &Value, shape: &ModelShape) -> Result<(), String> {
        let flops = run["efficiency"]["flops"].as_f64();
        let flops = flops.ok_or("its operations are unknown")?;
        let number = |name: &str, unknown| run[name].as_f64().unwrap_or(unknown);
        // What exceeds the operations of the tokens is attention. A token attends to at least as many tokens as a sequence has on
        // average, and to at most as many as the longest has.
        let of_token = flops / number("tokens", 0.0) - shape.flops_per_token() as f64;
        let attended = of_token / shape.flops_per_pair() as f64;
        let (mean, longest) = (number("mean_length", 0.0), number("longest", f64::MAX));
        if !(0.999 * mean..=1.001 * longest).contains(&attended) {
            let what = "its operations are not those of this model: measured was";
            return Err(format!("{what} {}", text(&run["model"])));
        }
        let device_s = number("device_s", 0.0);
        let rate = flops / device_s;
        if !(1.0..=1e18).contains(&rate) {
            let what = "its rate is impossible; expected 1 to 1e18 operations a second";
            return Err(format!("{what}, found {rate:e}"));
        }
        self.flops += flops;
        self.device_s += device_s;
        let device = run["gpu_names"].get(0).unwrap_or(&run["device"]);
        let device = text(device);
        let device = format!("{device} in {}", text(&run["dtype"]));
        self.devices.insert(device);
        // Run events do not name the shard. A shard of as many rows and tokens takes the same time.
        let finished = self.left.iter().position(|shard| {
            run["outcome"] == "done"
                && run["sequences"] == shard.sequences
                && run["tokens"] == shard.tokens
        });
        finished.map(|place| self.left.remove(place));
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}
