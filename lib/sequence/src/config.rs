//! What a run is asked to do.

use std::num::NonZero;
use std::path::PathBuf;

use plmkit_contract::{Provenance, SAMPLE};

use crate::duplicate::DuplicatePolicy;
use crate::fasta::Limits;
use crate::input::Input;
use crate::prepare::{LongPolicy, Policy};

/// How many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardTarget {
    /// So many, of nearly equal numbers of tokens.
    Shards(NonZero<usize>),
    /// As many as it takes, filled one after another up to this number of tokens each.
    MaxTokens(NonZero<u64>),
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// FASTA inputs, in order; at least one.
    pub inputs: Vec<Input>,
    /// Where the set of shards goes.
    pub folder: PathBuf,
    /// The name of the sample, where it has one.
    pub sample: Option<String>,
    /// How many shards there are.
    pub target: ShardTarget,
    /// What happens to each record.
    pub policy: Policy,
    /// What happens to ids that come again.
    pub duplicates: DuplicatePolicy,
    /// Whether nucleic acids are taken for proteins of few letters.
    pub any_alphabet: bool,
    /// Sizes above which an input is refused.
    pub limits: Limits,
    /// Threads that write shards; the files do not depend on it.
    pub threads: NonZero<usize>,
    /// Whether to replace a set of shards that is other work.
    pub force: bool,
}

impl ShardConfig {
    /// The provenance of the shards, given the digests of the inputs.
    pub(crate) fn provenance(&self, inputs: Vec<String>) -> Provenance {
        let policy = &self.policy;
        let overlap = (policy.long == LongPolicy::Window).then_some(policy.overlap);
        let (shards, max_shard_tokens) = match self.target {
            ShardTarget::Shards(count) => (Some(count.get()), None),
            ShardTarget::MaxTokens(tokens) => (None, Some(tokens.get())),
        };
        let provenance = Provenance::new("fasta-shard", inputs)
            .with("shards", shards)
            .with("max_shard_tokens", max_shard_tokens)
            .with("min_residues", policy.min_residues)
            .with("max_residues", policy.max_residues)
            .with("long_policy", policy.long)
            .with("overlap", overlap)
            .with("invalid", policy.invalid)
            .with("duplicate_ids", self.duplicates);
        match &self.sample {
            Some(sample) => provenance.with(SAMPLE, sample.as_str()),
            None => provenance,
        }
    }

    /// Shards of usual proteins that are written at the same time.
    pub(crate) fn open_shards(&self) -> usize {
        match self.target {
            ShardTarget::Shards(count) => count.get(),
            ShardTarget::MaxTokens(_) => 1,
        }
    }

    /// What each open shard may keep in memory. It shapes the files, so it depends on nothing but the options.
    pub(crate) fn row_group_bytes(&self) -> usize {
        let open = self.open_shards();
        (ROW_GROUPS_BYTES / open).clamp(1 << 16, 1 << 23)
    }
}

/// Memory for row groups over all open shards, in bytes.
const ROW_GROUPS_BYTES: usize = 64 << 20;
