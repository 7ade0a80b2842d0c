//! The configuration of a run.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Not;
use std::path::PathBuf;

use plmkit_contract::{KNOWN, Provenance};
use serde::Serialize;
use serde_json::{Value, json};

use crate::block::Limits;
use crate::duplicate::DuplicatePolicy;
use crate::known::{KnownDatasets, residue_difference};
use crate::policy::Policy;
use crate::shard_limit::ShardLimit;
use crate::translate::Translation;

/// The number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ShardTarget {
    /// This many, with nearly equal numbers of tokens.
    #[serde(rename = "shards")]
    Shards(NonZero<u32>),
    /// As many as needed, filled one after another up to this number of tokens.
    #[serde(rename = "max_shard_tokens")]
    MaxTokens(ShardLimit),
}

/// The options that decide the content of shards. Their names here are those in the provenance.
#[derive(Clone, Debug, Serialize)]
pub struct ShardOptions {
    /// The name of the sample, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    /// The number of shards.
    #[serde(flatten)]
    pub target: ShardTarget,
    /// How to translate the records, if they are nucleic acids.
    #[serde(flatten)]
    pub translation: Option<Translation>,
    /// The policy for records.
    #[serde(flatten)]
    pub policy: Policy,
    /// The policy for duplicate ids.
    pub duplicate_ids: DuplicatePolicy,
    /// Whether to embed only the first of the records with the same residues.
    #[serde(skip_serializing_if = "Not::not")]
    pub dedup: bool,
    /// Whether blanks may be anywhere between residues.
    #[serde(skip_serializing_if = "Not::not")]
    pub drop_blanks: bool,
    /// Whether a header may be one of PIR, with a title in the next line.
    #[serde(skip_serializing_if = "Not::not")]
    pub pir: bool,
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// FASTA inputs, in order; at least one. `-` is standard input.
    pub inputs: Vec<PathBuf>,
    pub folder: PathBuf,
    /// The options that decide the content.
    pub options: ShardOptions,
    /// Folders of earlier datasets, whose sequences are not embedded again.
    pub known: Vec<PathBuf>,
    /// Whether to accept inputs that look like nucleic acids, or like proteins if they are to be translated.
    pub any_alphabet: bool,
    /// The number of threads that write shards. The files do not depend on it.
    pub threads: NonZero<usize>,
    /// Whether to replace an existing set of shards.
    pub force: bool,
    /// Whether inputs may be without a record.
    pub allow_empty: bool,
}

impl ShardConfig {
    /// Returns the provenance of shards made from inputs with these digests, without the sequences of `known` datasets.
    pub(crate) fn provenance(
        &self,
        inputs: Vec<String>,
        known: Option<&KnownDatasets>,
    ) -> Provenance {
        let mut provenance = Provenance::new("fasta-shard", inputs);
        let options = serde_json::from_value(json!(self.options));
        provenance.options = options.expect("fields with names");
        for name in ["shards", "max_shard_tokens"] {
            let unset = provenance.options.entry(name.to_owned());
            unset.or_insert(Value::Null);
        }
        match known {
            Some(known) => provenance.with(KNOWN, known.option()),
            None => provenance,
        }
    }

    /// Describes the first difference to the options of other shards in what decides which residues of a protein are embedded.
    pub fn residue_difference(&self, other: &BTreeMap<String, Value>) -> Option<String> {
        let own = self.provenance(Vec::new(), None).options;
        let (option, was, is) = residue_difference(other, &own)?;
        Some(format!("{option} was {was} and is now {is}"))
    }

    /// Returns the limits of the inputs.
    pub(crate) fn limits(&self) -> Limits {
        let options = &self.options;
        Limits::of(
            options.translation.is_some(),
            options.drop_blanks,
            options.pir,
        )
    }

    /// Returns how many chunks of records may be in work at once. The thread that reads them may be busy with a row group, which
    /// takes as long as dozens of chunks.
    pub(crate) fn chunks_ahead(&self) -> usize {
        let threads = self.threads.get();
        (16 * threads).min(128).max(2 * threads)
    }
}
