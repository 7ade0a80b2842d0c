//! Running totals of an attempt: what its batches add up to.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::BatchDone;
use crate::thresholds::PACKING_MILD_BELOW;

/// Upper edges of the histogram of waits, exclusive. A last bin takes all longer waits.
pub const WAIT_EDGES_MS: [f64; 8] = [0.1, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// A longer time is none of a computation. It keeps sums finite.
const MAX_MS: f64 = 1e13;

/// Sums over the batches of an attempt, from its start on.
///
/// ```
/// use plmkit_logs::event::{BatchDone, Totals};
///
/// let batch = |tokens, wait_ms| BatchDone { tokens, wait_ms, ..BatchDone::default() };
/// let sum = |one, other| Totals::from(&batch(10, one)) + Totals::from(&batch(30, other));
/// let total = sum(Some(1.5), Some(2.5));
/// assert_eq!((total.batches, total.tokens, total.stages["wait"].ms), (2, 40, 4.0));
/// // A stage of which a batch does not know its time is unknown.
/// assert!(!sum(Some(1.5), None).stages.contains_key("wait"));
/// ```
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Batches.
    pub batches: u64,
    /// Sequences (rows), and copies of them with a masked residue.
    pub sequences: u64,
    /// Tokens, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// Residues.
    pub residues: u64,
    /// Pairs of tokens of one sequence; `None` if those of a batch are unknown.
    pub pairs: Option<u64>,
    /// Tokens of the longest sequence.
    pub longest: Option<u64>,
    /// How many times a batch was halved because memory ran out.
    #[serde(default)]
    pub oom_splits: u64,
    /// Sequences (rows) that were computed again in f32 because values overflowed.
    #[serde(default)]
    pub recomputed: u64,
    /// Sequences (rows) that could not be embedded.
    #[serde(default)]
    pub rejected: u64,
    /// How full the batches were.
    #[serde(default)]
    pub packing: PackingTotal,
    /// Times by stage: `wait`, `h2d`, `compute`, `d2h`, `write`. They may overlap. A stage that a batch does not know is left out.
    #[serde(default)]
    pub stages: BTreeMap<String, StageTotal>,
    /// Batches by how long the device waited for them: see [`WAIT_EDGES_MS`].
    #[serde(default)]
    pub waits: [u64; WAIT_EDGES_MS.len() + 1],
    /// Computing time by kernels in milliseconds, of the batches whose kernels were measured.
    #[serde(default)]
    pub kernels: BTreeMap<String, f64>,
    /// The most device memory that tensors held, in MiB.
    pub device_memory_peak_mib: Option<u64>,
}

/// How full batches were, the last of each file left out: it holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackingTotal {
    /// Batches whose fill is known.
    pub batches: u64,
    pub tokens: u64,
    /// The tokens that they have room for.
    pub room: u64,
    /// The least fill, 0 to 1.
    pub min_fill: Option<f64>,
    /// Batches below 85 %.
    pub below_85: u64,
}

/// The time of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTotal {
    /// Total time.
    pub ms: f64,
    /// The longest time of a batch.
    pub max_ms: f64,
}

impl From<&BatchDone> for Totals {
    fn from(batch: &BatchDone) -> Self {
        let stages = [
            ("wait", batch.wait_ms),
            ("h2d", batch.h2d_ms),
            ("compute", batch.compute_ms),
            ("d2h", batch.d2h_ms),
            ("write", batch.write_ms),
        ];
        let known = stages.into_iter().filter_map(|(name, ms)| {
            let ms = ms?;
            Some((name.to_owned(), StageTotal { ms, max_ms: ms }))
        });
        let mut waits = [0; WAIT_EDGES_MS.len() + 1];
        if let Some(wait_ms) = batch.wait_ms {
            waits[WAIT_EDGES_MS.partition_point(|&edge| edge <= wait_ms)] = 1;
        }
        let kernels = batch.kernels.iter().flatten();
        Self {
            batches: 1,
            sequences: batch.sequences,
            tokens: batch.tokens,
            residues: batch.residues,
            pairs: batch.pairs,
            longest: batch.longest,
            oom_splits: batch.oom_splits,
            recomputed: batch.recomputed,
            rejected: batch.rejected,
            packing: PackingTotal::of(batch).unwrap_or_default(),
            stages: known.collect(),
            waits,
            kernels: kernels
                .map(|(name, ms)| (name.clone(), ms.clamp(0.0, MAX_MS)))
                .collect(),
            device_memory_peak_mib: batch.device_memory_peak_mib,
        }
    }
}

impl PackingTotal {
    /// Returns how full a batch is; `None` if that is unknown, or it is the last of its file.
    fn of(batch: &BatchDone) -> Option<Self> {
        // A sequence longer than the budget fills its batch.
        let room = batch.token_budget.filter(|_| !batch.tail)?;
        let room = room.max(batch.tokens);
        let fill = (room > 0).then(|| batch.tokens as f64 / room as f64)?;
        Some(Self {
            batches: 1,
            tokens: batch.tokens,
            room,
            min_fill: Some(fill),
            below_85: u64::from(fill < PACKING_MILD_BELOW),
        })
    }

    /// Returns the mean fill of the batches, 0 to 1.
    pub fn mean_fill(&self) -> Option<f64> {
        (self.room > 0).then(|| self.tokens as f64 / self.room as f64)
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // Of no batches, nothing is unknown.
        if self.batches == 0 || other.batches == 0 {
            return if self.batches == 0 { other } else { self };
        }
        let (mut stages, mut kernels) = (self.stages, self.kernels);
        stages.retain(|name, _| other.stages.contains_key(name));
        for (name, stage) in &mut stages {
            stage.ms += other.stages[name].ms;
            stage.max_ms = stage.max_ms.max(other.stages[name].max_ms);
        }
        for (name, ms) in other.kernels {
            *kernels.entry(name).or_default() += ms;
        }
        let pairs = self.pairs.zip(other.pairs);
        let (one, two) = (self.packing, other.packing);
        let fills = [one.min_fill, two.min_fill].into_iter().flatten();
        let mut waits = self.waits;
        for (bin, more) in waits.iter_mut().zip(other.waits) {
            *bin = bin.saturating_add(more);
        }
        Self {
            batches: self.batches.saturating_add(other.batches),
            sequences: self.sequences.saturating_add(other.sequences),
            tokens: self.tokens.saturating_add(other.tokens),
            residues: self.residues.saturating_add(other.residues),
            pairs: pairs.map(|(one, two)| one.saturating_add(two)),
            longest: self.longest.max(other.longest),
            oom_splits: self.oom_splits.saturating_add(other.oom_splits),
            recomputed: self.recomputed.saturating_add(other.recomputed),
            rejected: self.rejected.saturating_add(other.rejected),
            packing: PackingTotal {
                batches: one.batches.saturating_add(two.batches),
                tokens: one.tokens.saturating_add(two.tokens),
                room: one.room.saturating_add(two.room),
                min_fill: fills.reduce(f64::min),
                below_85: one.below_85.saturating_add(two.below_85),
            },
            stages,
            waits,
            kernels,
            device_memory_peak_mib: self
                .device_memory_peak_mib
                .max(other.device_memory_peak_mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(batches: impl IntoIterator<Item = BatchDone>) -> Totals {
        let batches = batches.into_iter();
        batches.fold(Totals::default(), |sum, batch| sum + Totals::from(&batch))
    }

    #[test]
    fn each_wait_is_in_one_bin() {
        let waits = [0.0, 0.1, 0.5, 1.0, 999.0, 1000.0, 1e9];
        let total = total(waits.map(|wait_ms| BatchDone {
            wait_ms: Some(wait_ms),
            ..BatchDone::default()
        }));
        assert_eq!(total.waits, [1, 2, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!(total.stages["wait"].max_ms.to_bits(), 1e9_f64.to_bits());
    }

    #[test]
    fn last_batches_do_not_count_and_a_threshold_is_not_below_itself() {
        let packing = |batches: &[(u64, bool)]| {
            let batches = batches.iter().map(|&(tokens, tail)| BatchDone {
                tokens,
                token_budget: Some(100),
                tail,
                ..BatchDone::default()
            });
            // One without a budget.
            let packing = total(batches.chain([BatchDone::default()])).packing;
            (packing.below_85, packing.mean_fill(), packing.min_fill)
        };
        let well = packing(&[(100, false), (90, false), (10, true)]);
        assert_eq!(well, (0, Some(0.95), Some(0.9)));
        assert_eq!(packing(&[(20, true)]), (0, None, None));
        let some = packing(&[(85, false), (84, false), (80, false), (79, false)]);
        assert_eq!(some, (3, Some(0.82), Some(0.79)));
        // The mean of equal fills is that fill, and a sequence longer than the budget fills its batch.
        assert_eq!(packing(&[(85, false); 1000]).1, Some(0.85));
        assert_eq!(packing(&[(105, false)]).1, Some(1.0));
    }
}
