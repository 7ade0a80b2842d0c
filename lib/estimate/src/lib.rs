//! An estimate of a run before it: operations, time, files and bytes of embeddings.
//!
//! Tokens and operations are computed from the lengths of all sequences, by the formulas of the run's own events. Time is
//! operations over one rate: that of measured runs, a given one, or a share of the peaks of common GPUs.

mod lengths;
mod measured;

use std::fmt;
use std::num::NonZeroU32;

use plmkit_contract::{Column, Dtype, ModelShape, StoreDtype};
use plmkit_page::duration;
use plmkit_telemetry::devices::peak_flops_per_s;
use serde::Serialize;

pub use lengths::Lengths;
pub use measured::Measured;

/// Bytes of the key of a row of embeddings, without its id: ordinal, start, length, truncated, and the digest in hexadecimal.
const KEY_BYTES: u64 = 8 + 4 + 4 + 1 + 32;

/// The tokens of the batches for which device memory is told: those of the measured runs.
const BATCH_TOKENS: u64 = 65_536;

/// What a run is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The name of the model.
    pub model: String,
    pub shape: ModelShape,
    /// The columns of the embeddings.
    pub columns: Vec<Column>,
    /// Their stored type.
    pub store_dtype: StoreDtype,
    /// Files that the run leaves.
    pub files: u64,
    /// The most MiB that tensors hold: see [`tensor_memory`].
    pub tensor_memory_mib: u64,
    /// Which tensors these are and the source of the figure, in words.
    pub tensor_memory: String,
    /// How many devices compute, each a shard at a time.
    pub gpus: NonZeroU32,
    /// The source of the rates, or why there are none, in words.
    pub rate: String,
}

/// An estimate of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// What the run is asked to do.
    #[serde(flatten)]
    pub plan: Plan,
    /// The sums over all shards.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Shards.
    pub shards: usize,
    /// Shards that measured runs have not finished. The times are theirs.
    pub shards_left: usize,
    /// Floating-point operations of the matrix products of all tokens. A multiplication and an addition are two.
    pub linear_flops: f64,
    /// Floating-point operations of attention.
    pub attention_flops: f64,
    /// Bytes of the values of the embeddings and of the keys without ids, before compression.
    pub embedding_bytes: u64,
    /// The time on each device, without loading the model.
    pub times: Vec<Time>,
}

/// Time on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// The name of the device.
    pub device: String,
    /// Its rate, in floating-point operations a second.
    pub flops_per_s: f64,
    /// Hours on one device.
    pub device_hours: f64,
    /// Hours with all devices: those on one over their number, and at least those of the largest shard.
    pub wall_hours: f64,
}

/// Devices and their rates, in floating-point operations a second.
pub type Rates = Vec<(String, f64)>;

/// The share of a GPU's peak that is assumed if no rate was measured or given.
///
/// Published figures of ESM-2 and models like it on A100 and H100, in 16-bit types and without padding, are 43 to 45 %.
pub const PEAK_SHARE: f64 = 0.4;

/// Returns those of the named GPUs whose peaks in a type of the computation are known, and a share of these peaks.
pub fn shares_of_peaks(dtype: Dtype, names: &[&str]) -> Rates {
    let peak = |name: &&str| {
        Some((
            (*name).to_owned(),
            PEAK_SHARE * peak_flops_per_s(name, dtype)?,
        ))
    };
    names.iter().filter_map(peak).collect()
}

/// Returns the most MiB that tensors hold, and in words, which these are and the source of the figure. On a GPU, with batches of 65,536
/// tokens, 650M was measured in 16-bit types. The formula has the matrices, and for each token the vectors between those of one layer:
/// 7 of the model's width and those in the feed-forward network. For 650M it is 2 % too low. In fp8, weights have a copy in f16, and
/// vectors are in 16 bits. int8 is of CPUs, and the figure that of its weights: there, batches are small.
pub fn tensor_memory(shape: &ModelShape, dtype: Dtype) -> (u64, String) {
    let on_a_gpu = |source: &str| {
        format!("of tensors on a GPU with batches of {BATCH_TOKENS} tokens, {source}")
    };
    let measured = ModelShape::published("facebook/esm2_t33_650M_UR50D");
    if measured == Some(*shape) && matches!(dtype, Dtype::F16 | Dtype::Bf16) {
        return (3713, on_a_gpu("measured on an H100 and an H200"));
    }
    let formula = "by a formula, not measured";
    let inner = (2 + u64::from(shape.gated)) * u64::from(shape.intermediate);
    let vectors = BATCH_TOKENS * (7 * u64::from(shape.hidden) + inner);
    let weights = shape.flops_per_token() / 2;
    let bytes = match dtype {
        Dtype::F32 => 4 * (weights + vectors),
        Dtype::F16 | Dtype::Bf16 => 2 * (weights + vectors),
        Dtype::Fp8 => 3 * weights + 2 * vectors,
        Dtype::Int8 => {
            // A scale and a sum for each group of 128 weights.
            let bytes = weights + weights / 128 * 8;
            return (bytes >> 20, format!("of weights on a CPU, {formula}"));
        }
    };
    (bytes >> 20, on_a_gpu(formula))
}

impl Estimate {
    /// Estimates the work of all `shards`, and the time of those that are `left`, by the rates of devices.
    pub fn new(plan: Plan, shards: &[Lengths], left: &[Lengths], rates: Rates) -> Self {
        let lengths = Lengths::sum(shards);
        let [linear_flops, attention_flops] = lengths.flops(&plan.shape);
        let flops = |shard: &Lengths| shard.flops(&plan.shape).iter().sum::<f64>();
        // An empty sum is -0.
        let on_one = left.iter().map(flops).fold(0.0, |sum, flops| sum + flops);
        let largest = left.iter().map(flops).fold(0.0, f64::max);
        let on_all = (on_one / f64::from(plan.gpus.get())).max(largest);
        let times = rates.into_iter().map(|(device, rate)| Time {
            device,
            flops_per_s: rate,
            device_hours: on_one / rate / 3600.0,
            wall_hours: on_all / rate / 3600.0,
        });
        Self {
            shards: shards.len(),
            shards_left: left.len(),
            linear_flops,
            attention_flops,
            embedding_bytes: embedding_bytes(&plan, &lengths),
            times: times.collect(),
            plan,
            lengths,
        }
    }
}

fn embedding_bytes(plan: &Plan, lengths: &Lengths) -> u64 {
    let values = plan.columns.iter().map(|&column| {
        let rows = match column {
            Column::Pooled { .. } | Column::LogLikelihood => lengths.proteins,
            Column::Residues(_) | Column::Logits | Column::LogProbs => lengths.residues,
            Column::Contacts => lengths.residue_pairs,
        };
        // The values for one residue, which for a pooled vector are those of the protein.
        rows.saturating_mul(column.values(1, plan.shape.widths()) as u64)
    });
    let values = values.fold(0, u64::saturating_add);
    let values = values.saturating_mul(plan.store_dtype.bytes() as u64);
    values.saturating_add(lengths.proteins.saturating_mul(KEY_BYTES))
}

/// The model, the work, what it leaves, and the time on each device: on one, and in parentheses on all.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, of) = (&self.plan, &self.lengths);
        let (layers, hidden, dtype) = (plan.shape.layers, plan.shape.hidden, plan.store_dtype);
        let (model, files, rate) = (&plan.model, plan.files, &plan.rate);
        let (mib, source) = (plan.tensor_memory_mib, &plan.tensor_memory);
        let (proteins, sequences, tokens) = (of.proteins, of.sequences, of.tokens);
        let (bytes, left, shards) = (self.embedding_bytes, self.shards_left, self.shards);
        let columns: Vec<String> = plan.columns.iter().map(Column::to_string).collect();
        let columns = columns.join(", ");
        let flops = self.linear_flops + self.attention_flops;
        let attention = 100.0 * self.attention_flops / flops.max(1.0);
        let times = self.times.iter().map(|time| {
            let duration = |hours: f64| duration(hours * 3600.0);
            let on_one = format!("{} on {}", duration(time.device_hours), time.device);
            match plan.gpus.get() {
                1 => on_one,
                gpus => format!("{on_one} ({} on {gpus})", duration(time.wall_hours)),
            }
        });
        let times = times.collect::<Vec<_>>().join(", ");
        let time = if times.is_empty() {
            format!(": {rate}")
        } else {
            format!(" at {rate}: {times}")
        };
        write!(
            f,
            "{model}: {layers} layers of {hidden}, {columns} in {dtype}
work   {proteins} proteins, {sequences} sequences, {tokens} tokens
       {flops:.2e} FLOP, {attention:.1} % of them attention
files  {files}
bytes  {bytes} of embeddings, before compression
memory {mib} MiB {source}
time   of {left} of {shards} shards{time}
"
        )
    }
}

#[cfg(test)]
mod tests;
