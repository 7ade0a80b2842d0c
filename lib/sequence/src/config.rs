//! The configuration of a run.

use std::num::NonZero;
use std::path::PathBuf;

use plmkit_contract::{KNOWN, Provenance, SAMPLE};

use crate::duplicate::DuplicatePolicy;
use crate::fasta::{BLOCK_BYTES, Limits};
use crate::input::Input;
use crate::known::KnownDatasets;
use crate::prepare::{LongPolicy, Policy};
use crate::translate::{Peptides, Translation, Translator};

/// The number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardTarget {
    /// This many, with nearly equal numbers of tokens.
    Shards(NonZero<usize>),
    /// As many as needed, filled one after another up to this number of tokens.
    MaxTokens(NonZero<u64>),
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// FASTA inputs, in order; at least one.
    pub inputs: Vec<Input>,
    /// The output folder.
    pub folder: PathBuf,
    /// The name of the sample, if any.
    pub sample: Option<String>,
    /// The number of shards.
    pub target: ShardTarget,
    /// How to translate the records, if they are nucleic acids.
    pub translation: Option<Translation>,
    /// The policy for records.
    pub policy: Policy,
    /// The policy for duplicate ids.
    pub duplicates: DuplicatePolicy,
    /// Whether to embed only the first of the records with the same residues.
    pub dedup: bool,
    /// Folders of earlier datasets, whose sequences are not embedded again.
    pub known: Vec<PathBuf>,
    /// Whether to accept inputs that look like nucleic acids, or like proteins if they are to be translated.
    pub any_alphabet: bool,
    /// Limits of the inputs.
    pub limits: Limits,
    /// The number of threads that write shards. The files do not depend on it.
    pub threads: NonZero<usize>,
    /// Whether to replace an existing set of shards.
    pub force: bool,
}

impl ShardConfig {
    /// Returns the provenance of shards made from inputs with these digests, without the sequences of `known` datasets.
    pub(crate) fn provenance(
        &self,
        inputs: Vec<String>,
        known: Option<&KnownDatasets>,
    ) -> Provenance {
        let policy = &self.policy;
        let overlap = (policy.long == LongPolicy::Window).then_some(policy.overlap);
        let (shards, max_shard_tokens) = match self.target {
            ShardTarget::Shards(count) => (Some(count.get()), None),
            ShardTarget::MaxTokens(tokens) => (None, Some(tokens.get())),
        };
        let mut provenance = Provenance::new("fasta-shard", inputs)
            .with("shards", shards)
            .with("max_shard_tokens", max_shard_tokens)
            .with("min_residues", policy.min_residues)
            .with("max_residues", policy.max_residues)
            .with("long_policy", policy.long)
            .with("overlap", overlap)
            .with("invalid", policy.invalid)
            .with("duplicate_ids", self.duplicates);
        if let Some(sample) = &self.sample {
            provenance = provenance.with(SAMPLE, sample.as_str());
        }
        if let Some(Translation { peptides, code }) = self.translation {
            provenance = provenance.with("genetic_code", code);
            provenance = match peptides {
                Peptides::SixFrame(stops) => provenance
                    .with("translate", "six-frame")
                    .with("stops", stops),
                Peptides::Orf(between) => provenance
                    .with("translate", "orf")
                    .with("orf_between", between),
            };
        }
        if self.dedup {
            provenance = provenance.with("dedup", true);
        }
        if let Some(known) = known {
            provenance = provenance.with(KNOWN, known.option());
        }
        provenance
    }

    /// Whether digests of proteins decide what becomes of them.
    pub(crate) fn identifies(&self) -> bool {
        self.dedup || !self.known.is_empty()
    }

    /// Returns the number of shards, apart from those of long proteins, that are written at the same time.
    pub(crate) fn open_shards(&self) -> usize {
        match self.target {
            ShardTarget::Shards(count) => count.get(),
            ShardTarget::MaxTokens(_) => 1,
        }
    }

    /// Returns the translator of contigs, if there is a translation.
    pub(crate) fn translator(&self) -> Option<Translator> {
        let min_residues = self.policy.min_residues;
        self.translation
            .map(|translation| Translator::new(translation, min_residues))
    }

    /// Returns how many row groups may be in work at once.
    pub(crate) fn row_groups_ahead(&self) -> usize {
        2 * self.threads.get()
    }

    /// Returns how many chunks of records may be in work at once. The thread that reads them may be busy with a row group, which
    /// takes as long as dozens of chunks.
    pub(crate) fn chunks_ahead(&self) -> usize {
        let threads = self.threads.get();
        (16 * threads).min(128).max(2 * threads)
    }

    /// Returns how many bytes of chunks in work suffice: no more are read then. Long contigs are read one by one.
    pub(crate) fn bytes_ahead(&self) -> usize {
        BLOCK_BYTES * self.chunks_ahead()
    }
}
