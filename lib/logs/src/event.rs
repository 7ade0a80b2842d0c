//! Run events: the log of an embedding run while it works.
//!
//! Each line is a JSON object with a `type` field. Several runs may write to one file, one after the other or at the same
//! time: `run` tells them apart. An unknown value is left out, never 0.

mod reader;
mod totals;
mod writer;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Timestamp;

pub use reader::{EventLines, EventReader};
pub use totals::{PackingTotal, StageTotal, Totals, WAIT_EDGES_MS};
pub use writer::EventWriter;

/// One line of a run's event log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A run starts.
    Run(RunStarted),
    /// A batch is finished.
    Batch(BatchDone),
    /// A run ends, successfully or not. A killed run has no such line.
    Done(RunDone),
    /// The capacity of a device's memory was measured. Belongs to no run.
    Probe(Probed),
    /// A type of a newer program. Readers skip it.
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Event {
    /// Returns the run, the time of day, and the time since boot.
    fn origin(&self) -> (Option<&str>, Option<Timestamp>, Option<f64>) {
        match self {
            Self::Run(event) => (Some(&event.run), event.time, event.boot_s),
            Self::Batch(event) => (Some(&event.run), event.time, event.boot_s),
            Self::Done(event) => (Some(&event.run), event.time, event.boot_s),
            Self::Probe(event) => (None, event.time, None),
            Self::Unknown => (None, None, None),
        }
    }

    /// Returns the name of the run, if the event belongs to one.
    pub fn run(&self) -> Option<&str> {
        self.origin().0
    }

    /// Returns the time of day of the event.
    pub fn time(&self) -> Option<Timestamp> {
        self.origin().1
    }

    /// Returns the time of the event in [seconds since boot](crate::boot_seconds).
    pub fn boot_s(&self) -> Option<f64> {
        self.origin().2
    }
}

/// The first event of a run: its work and its setup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run's name: see [`run_id`].
    pub run: String,
    /// The lasting name of the work. A run that resumes an interrupted one has the same.
    pub job: Option<String>,
    /// The time of day.
    pub time: Option<Timestamp>,
    /// The [boot](crate::boot_id) of the machine, for the `boot_s` of all events of the run.
    pub boot_id: Option<String>,
    /// The time in [seconds since boot](crate::boot_seconds).
    pub boot_s: Option<f64>,
    #[serde(default)]
    pub tool: String,
    #[serde(default)]
    pub version: String,
    /// Digest of the model, as embedding files carry it.
    pub model_digest: Option<String>,
    /// The name of the model: an id of the Hugging Face Hub, or the name of its folder.
    pub model: Option<String>,
    /// The commit of the Hub, if known.
    pub model_revision: Option<String>,
    /// The name of the sample that the sequences belong to.
    pub sample: Option<String>,
    /// The name of the embeddings file.
    pub output: Option<String>,
    /// The device: `cpu`, `cuda:0`.
    pub device: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The version of the NVIDIA driver: `580.65.06`. Only of a run on GPUs, as the fields up to `gpu_uuids`.
    pub driver_version: Option<String>,
    /// The newest version of CUDA that the driver supports: `13.0`.
    pub cuda_version: Option<String>,
    /// Product names of the GPUs: `NVIDIA H100 80GB HBM3`.
    pub gpu_names: Option<Vec<String>>,
    /// UUIDs of the GPUs as the driver writes them (`GPU-…`), in the order of the names. They join the run with the samples of
    /// those GPUs.
    pub gpu_uuids: Option<Vec<String>>,
    pub pid: Option<u32>,
    /// Floating-point operations of the matrix products for a token, without attention. A multiplication and an addition are two.
    pub flops_per_token: Option<u64>,
    /// Floating-point operations of attention for a pair of tokens of one sequence, over all layers and heads.
    pub flops_per_pair: Option<u64>,
    /// The number type of the computation: `f32`, `f16`, `bf16`, `int8`, `fp8`.
    pub dtype: Option<String>,
    /// What computes the layers: an instruction set of plmkit's CPU kernels, `cuda` or `libtorch`.
    pub kernel_set: Option<String>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// Batches that this run will compute.
    pub batches_total: Option<u64>,
    /// Saved batches that are taken over from an earlier, interrupted run.
    pub batches_saved: Option<u64>,
    /// Sequences (rows; each window and each masked copy counts) that this run will compute.
    pub sequences_total: Option<u64>,
    /// Tokens that this run will compute, `<cls>` and `<eos>` included.
    pub tokens_total: Option<u64>,
    /// The token budget of a batch.
    pub token_budget: Option<u64>,
    /// Loading the model before the first batch: opening the device, reading, hashing and packing or copying the weights, and
    /// the rest of the preparation.
    pub load_ms: Option<f64>,
    /// Compiling GPU kernels, a part of `load_ms`.
    pub compile_ms: Option<f64>,
    /// Page-locking host memory for the largest batches, a part of `load_ms`.
    pub pin_ms: Option<f64>,
    /// Comparing int8 or fp8 with f32 on a sample, after loading.
    pub compare_ms: Option<f64>,
}

/// A batch is finished: the writer has its results.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchDone {
    /// The run's name.
    pub run: String,
    /// Position of the batch among all batches of the run.
    pub batch: u64,
    /// The time of day.
    pub time: Option<Timestamp>,
    /// The time in [seconds since boot](crate::boot_seconds).
    pub boot_s: Option<f64>,
    /// Seconds since the run's start, by a monotonic clock.
    pub elapsed_s: Option<f64>,
    /// CPU time of the process since the run's start, over all threads, in seconds.
    pub cpu_s: Option<f64>,
    /// How long the device waited for this batch.
    pub wait_ms: Option<f64>,
    /// Copy from host to device.
    pub h2d_ms: Option<f64>,
    /// Forward pass and pooling.
    pub compute_ms: Option<f64>,
    /// Copy from device to host.
    pub d2h_ms: Option<f64>,
    /// The parts of `compute_ms` by kind of work, if they were measured: `gemm_ms`, `attention_ms`.
    pub kernels: Option<BTreeMap<String, f64>>,
    /// Encoding and writing of the results.
    pub write_ms: Option<f64>,
    /// Other batches that were ready in the queue when this one was taken.
    pub queue_depth: Option<u64>,
    /// Sequences (rows) in the batch, and copies of them with a masked residue.
    pub sequences: u64,
    /// Tokens in the batch, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// Residues in the batch.
    pub residues: u64,
    /// Tokens of the longest sequence.
    pub longest: Option<u64>,
    /// Pairs of tokens of one sequence: the sum of the squares of their lengths in tokens.
    pub pairs: Option<u64>,
    /// The token budget of the batch.
    pub token_budget: Option<u64>,
    /// Whether it is the tail of its file, the emptiest batch, which holds what was left. It does not count for packing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tail: bool,
    /// How many times the batch was halved because memory ran out.
    #[serde(default)]
    pub oom_splits: u64,
    /// Sequences (rows) that were computed again in f32 because values overflowed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recomputed: u64,
    /// Device memory that tensors of the process held when the batch was done, in MiB. Unknown on a CPU.
    pub device_memory_mib: Option<u64>,
    /// The most device memory that tensors held since the previous batch of the process, in MiB. Unknown on a CPU.
    pub device_memory_peak_mib: Option<u64>,
    /// Sequences (rows) of the batch that could not be embedded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rejected: u64,
    /// The totals of the attempt up to this batch. Without them, they follow from the batches.
    pub total: Option<Totals>,
}

/// The last event of a run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunDone {
    /// The run's name.
    pub run: String,
    /// The time of day.
    pub time: Option<Timestamp>,
    /// The time in [seconds since boot](crate::boot_seconds).
    pub boot_s: Option<f64>,
    /// Sequences (rows) of the output that could not be embedded, those of earlier attempts included.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rejected: u64,
    /// Seconds since the run's start, by a monotonic clock.
    pub elapsed_s: f64,
    /// CPU time of the process since the run's start, over all threads, in seconds.
    pub cpu_s: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The totals of the attempt.
    pub total: Option<Totals>,
}

/// The number of tokens that a device can compute at once.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// The time of day.
    pub time: Option<Timestamp>,
    /// Digest of the model.
    pub model_digest: String,
    /// The device: `cuda:0`.
    pub device: String,
    /// The number type of the computation.
    pub dtype: String,
    /// The most tokens that were computed at once.
    pub largest_tokens: u64,
    /// The recommended token budget.
    pub recommended_tokens: u64,
    /// Computations that were tried.
    pub tries: u64,
    /// Tries that ran out of memory.
    pub out_of_memory: u64,
}

/// How a run ended.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Everything was computed and written.
    #[default]
    Done,
    /// A signal stopped it.
    Stopped,
    /// An error ended it.
    Failed,
}

/// Returns a name for a run that starts now in this process: UTC time and process id.
pub fn run_id() -> String {
    format!("{}-{}", Timestamp::now(), std::process::id())
}

/// Whether a name may be one of [`run_id`], which tells people nothing.
pub fn is_run_id(name: &str) -> bool {
    let parts = name.rsplit_once('-');
    parts.is_some_and(|(time, _)| time.parse::<Timestamp>().is_ok())
}

/// Returns a duration in milliseconds, to the microsecond, for the `…_ms` fields.
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_object_with_its_type_first_and_unknown_values_left_out() {
        let event = Event::Batch(BatchDone {
            run: "r".to_owned(),
            batch: 7,
            compute_ms: Some(milliseconds(Duration::from_nanos(1_234_567))),
            sequences: 2,
            tokens: 10,
            residues: 6,
            ..BatchDone::default()
        });
        let text = serde_json::to_string(&event).unwrap();
        let expected = concat!(
            r#"{"type":"batch","run":"r","batch":7,"compute_ms":1.234,"#,
            r#""sequences":2,"tokens":10,"residues":6,"oom_splits":0}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn null_is_a_value_that_is_not_known() {
        let text = r#"{"type":"run","run":"r","threads":null,"time":null}"#;
        let expected = Event::Run(RunStarted {
            run: "r".to_owned(),
            ..RunStarted::default()
        });
        assert_eq!(serde_json::from_str::<Event>(text).unwrap(), expected);
    }
}
