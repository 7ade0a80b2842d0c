//! `manifest.json`: what `fasta-shard` found and made. Its presence says that the set of shards is complete.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Reason;

/// The whole of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The file contract's version.
    pub contract: String,
    /// The program that wrote it.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The options that the shards depend on, the defaults included.
    pub options: BTreeMap<String, Value>,
    /// The FASTA inputs, in order.
    pub inputs: Vec<InputSummary>,
    /// Records read.
    pub records: u64,
    /// Records that went into a shard.
    pub accepted: u64,
    /// Records in `rejects.csv`, by reason; every reason is listed.
    pub rejected: BTreeMap<Reason, u64>,
    /// Rows over all shards: accepted records, or their windows.
    pub rows: u64,
    /// Residues over all rows; those in the overlap of two windows count twice.
    pub residues: u64,
    /// Tokens over all rows: residues and two special tokens a row.
    pub tokens: u64,
    /// How often the residue and id policies changed something, by what they changed; every policy is listed.
    pub changed: BTreeMap<String, u64>,
    /// Lengths of the accepted proteins in residues, before truncation or windows.
    pub lengths: LengthSummary,
    /// The shards, in order.
    pub shards: Vec<ShardSummary>,
}

/// One FASTA input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSummary {
    /// The file's name without its folder, or `-` for standard input.
    pub name: String,
    /// Digest of the decompressed bytes.
    pub digest: String,
    /// Decompressed size in bytes.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
}

/// One shard file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSummary {
    /// The file's name, relative to the manifest.
    pub file: String,
    /// Its rows.
    pub rows: u64,
    /// Residues over its rows.
    pub residues: u64,
    /// Tokens over its rows.
    pub tokens: u64,
    /// Its row digest.
    pub digest: String,
}

/// The distribution of sequence lengths, in residues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthSummary {
    /// The shortest; null where nothing was accepted.
    pub min: Option<u64>,
    /// The longest; null where nothing was accepted.
    pub max: Option<u64>,
    /// The mean; null where nothing was accepted.
    pub mean: Option<f64>,
    /// Counts in bins that start at each of [`length_bin_edges`].
    pub histogram: Vec<LengthBin>,
}

/// One bin of the length histogram: lengths of at least `from` residues and less than the next bin's `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthBin {
    /// The smallest length in the bin.
    pub from: u64,
    /// Sequences in it.
    pub count: u64,
}

/// Where the bins of the length histogram start: steps of 50 residues up to 1000, then doubling.
pub fn length_bin_edges() -> impl Iterator<Item = u64> {
    (0..1000)
        .step_by(50)
        .chain((0..).map(|doubling| 1000 << doubling).take(8))
}
