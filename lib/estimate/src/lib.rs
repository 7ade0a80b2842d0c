//! An estimate of a run before it: operations, time on named GPUs, disk and files.
//!
//! Tokens and operations are computed from the lengths of all sequences, by the formulas of the run's own events. Time is
//! operations over a rate: a share of a GPU's peak, or the rate of a measured run. Disk is computed from bytes a row that were
//! measured on real files.

mod disk;
mod measured;
mod schedule;
mod table;
mod work;

use std::num::NonZeroU32;

use plmkit_contract::{Column, ModelShape, StoreDtype};
use serde::Serialize;

pub use disk::Disk;
pub use measured::{Measured, measured};
pub use table::table;
pub use work::{Lengths, Work};

use measured::by_device;
use plmkit_telemetry::devices::{DEFAULT_DEVICES, devices_named, peak_flops_per_s};
use schedule::makespan;

/// The share of a GPU's peak that is assumed if nothing was measured.
///
/// Published figures of ESM-2 and models like it on A100 and H100, in 16-bit types and without padding, are 43 to 45 %.
pub const DEFAULT_MFU: f64 = 0.4;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the model.
    pub model: String,
    /// Its shape.
    pub shape: ModelShape,
    /// The columns of the embeddings.
    pub columns: Vec<Column>,
    /// The stored type of values.
    pub store_dtype: StoreDtype,
    /// The type of the computation: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The assumed share of the peak, 0 to 1.
    pub mfu: f64,
    /// How many devices compute, each a shard at a time.
    pub gpus: NonZeroU32,
}

/// An estimate of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The version of the program that made it.
    pub version: &'static str,
    /// The name of the model.
    pub model: String,
    /// Its sizes.
    pub shape: ModelShape,
    /// Floating-point operations of the matrix products for a token. A multiplication and an addition are two.
    pub flops_per_token: u64,
    /// Floating-point operations of attention for a pair of tokens of one sequence.
    pub flops_per_pair: u64,
    /// The columns of the embeddings.
    pub columns: Vec<String>,
    /// Their stored type.
    pub store_dtype: StoreDtype,
    /// What is to be computed.
    pub work: Work,
    /// Operations of the matrix products of all tokens.
    pub linear_flops: f64,
    /// Operations of attention.
    pub attention_flops: f64,
    /// How many devices compute.
    pub gpus: NonZeroU32,
    /// Time on each device, without loading the model.
    pub devices: Vec<DeviceTime>,
    /// Bytes of files.
    pub disk: Disk,
}

/// Time on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceTime {
    /// The name of the device.
    pub device: String,
    /// The type of the computation.
    pub dtype: String,
    /// The peak of its data sheet, in floating-point operations a second; `None` for a measured rate.
    pub peak_flops_per_s: Option<f64>,
    /// The assumed share of the peak; `None` for a measured rate.
    pub mfu: Option<f64>,
    /// The rate that the times follow from.
    pub flops_per_s: f64,
    /// Tokens a second on one device, for these lengths.
    pub tokens_per_s: f64,
    /// Hours on one device.
    pub device_hours: f64,
    /// Hours from beginning to end with all devices, each with a shard at a time.
    pub wall_hours: f64,
    /// Hours of the largest shard.
    pub largest_shard_hours: f64,
}

/// Why there is no estimate for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// It is no GPU whose peak is known.
    #[error(
        "no rate is known for '{0}': expected a part of {1}; or measure a first shard, see --measured"
    )]
    Unknown(String, String),
    /// Its tensor cores do not support the type.
    #[error("{0} has no known rate in {1}: expected another --dtype")]
    Dtype(String, String),
}

impl Estimate {
    /// Estimates `work`: on the devices of `measured`, and on those with one of `names` in their own. Without both, on a choice of
    /// common GPUs; the name `all` is every GPU with a known peak.
    pub fn new(
        plan: &Plan,
        work: Work,
        measured: &[Measured],
        names: &[String],
    ) -> Result<Self, DeviceError> {
        let (per_token, per_pair) = (plan.shape.flops_per_token(), plan.shape.flops_per_pair());
        let linear = |tokens: u64| tokens as f64 * per_token as f64;
        let attention = |pairs: u64| pairs as f64 * per_pair as f64;
        let shards = work.shards.iter();
        let shards: Vec<f64> = shards
            .map(|shard| linear(shard.tokens) + attention(shard.pairs))
            .collect();
        let total: f64 = linear(work.all.tokens) + attention(work.all.pairs);
        let time = |device: &str, dtype: &str, peak: Option<f64>, rate: f64| {
            let hours = |flops: f64| flops / rate / 3600.0;
            DeviceTime {
                device: device.to_owned(),
                dtype: dtype.to_owned(),
                peak_flops_per_s: peak,
                mfu: peak.map(|peak| rate / peak),
                flops_per_s: rate,
                tokens_per_s: if total > 0.0 {
                    work.all.tokens as f64 * rate / total
                } else {
                    0.0
                },
                device_hours: hours(total),
                wall_hours: hours(makespan(&shards, plan.gpus)),
                largest_shard_hours: hours(shards.iter().copied().fold(0.0, f64::max)),
            }
        };
        let mut devices: Vec<DeviceTime> = by_device(measured)
            .iter()
            .map(|runs| time(&runs.device, &runs.dtype, None, runs.flops / runs.device_s))
            .collect();
        for device in chosen(names, !measured.is_empty())? {
            match peak_flops_per_s(device, &plan.dtype) {
                Some(peak) => devices.push(time(device, &plan.dtype, Some(peak), peak * plan.mfu)),
                // A device that nobody asked for by name is left out.
                None if names.iter().all(|name| name == "all") => {}
                None => return Err(DeviceError::Dtype(device.to_owned(), plan.dtype.clone())),
            }
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            model: plan.model.clone(),
            shape: plan.shape,
            flops_per_token: per_token,
            flops_per_pair: per_pair,
            columns: plan.columns.iter().map(ToString::to_string).collect(),
            store_dtype: plan.store_dtype,
            linear_flops: linear(work.all.tokens),
            attention_flops: attention(work.all.pairs),
            gpus: plan.gpus,
            devices,
            disk: Disk::new(plan, &work),
            work,
        })
    }
}

/// Returns the devices of the data sheets to estimate.
fn chosen(names: &[String], has_measured: bool) -> Result<Vec<&'static str>, DeviceError> {
    if names.is_empty() {
        let default = if has_measured {
            &[][..]
        } else {
            DEFAULT_DEVICES
        };
        return Ok(default.to_vec());
    }
    let mut chosen = Vec::new();
    for name in names {
        let found = devices_named(if name == "all" { "" } else { name });
        if found.is_empty() {
            let known = DEFAULT_DEVICES.join(", ");
            return Err(DeviceError::Unknown(name.clone(), known));
        }
        for device in found {
            if !chosen.contains(&device) {
                chosen.push(device);
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests;
