//! Runs that were measured.

use std::collections::BTreeSet;

use plmkit_contract::ModelShape;
use plmkit_logs::event::Outcome;
use plmkit_telemetry::report::RunSummary;

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
    /// Adds a run. The error says that it was of another model than one of `shape`, or of an impossible rate.
    pub fn add(&mut self, run: &RunSummary, shape: &ModelShape) -> Result<(), String> {
        let (setup, unknown) = (&run.setup, "unknown".to_owned());
        let named = |what: String| format!("run {}: {what}", setup.run);
        let flops = run.efficiency.flops;
        let flops = flops.ok_or_else(|| named("its operations are unknown".to_owned()))?;
        let of_shape = (shape.flops_per_token(), shape.flops_per_pair());
        if setup.flops_per_token.zip(setup.flops_per_pair) != Some(of_shape) {
            let model = setup.model.as_ref().unwrap_or(&unknown);
            let what = "its operations are not those of this model: measured was";
            return Err(named(format!("{what} {model}")));
        }
        let device_s = run.device_s.unwrap_or(0.0);
        let rate = flops / device_s;
        if !(1.0..=1e18).contains(&rate) {
            let what = "its rate is impossible; expected 1 to 1e18 operations a second";
            return Err(named(format!("{what}, found {rate:e}")));
        }
        self.flops += flops;
        self.device_s += device_s;
        let device = setup.gpu_names.as_ref().and_then(|names| names.first());
        let device = device.or(setup.device.as_ref()).unwrap_or(&unknown);
        let dtype = setup.dtype.as_ref().unwrap_or(&unknown);
        self.devices.insert(format!("{device} in {dtype}"));
        // Run events do not name the shard. A shard of as many rows and tokens takes the same time.
        let tokens = run.total.tokens - run.lost_tokens.unwrap_or(0);
        let finished = self.left.iter().position(|shard| {
            let has_all = run.total.sequences == shard.sequences || run.lost_batches > 0;
            run.outcome == Some(Outcome::Done) && has_all && tokens == shard.tokens
        });
        finished.map(|place| self.left.remove(place));
        Ok(())
    }
}
