//! `manifest.json`: the inputs and outputs of `fasta-shard`. A folder with a manifest holds a complete set of shards.

use std::collections::BTreeMap;
use std::iter;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ALIASES_FILE, EmbeddingWork, KNOWN_FILE, Kind, ListedFile, PEPTIDES_FILE, Provenance, Reason,
    Sealed,
};

/// The name of the manifest, beside the shards.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The name of the list of rejected records, beside the shards.
pub const REJECTS_FILE: &str = "rejects.csv";

/// The name of the list of renamed records, beside the shards.
pub const RENAMED_FILE: &str = "renamed.csv";

/// The content of `manifest.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The file contract's version.
    pub contract: String,
    /// The program that wrote it.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The options that the shards depend on, defaults included.
    pub options: BTreeMap<String, Value>,
    /// The FASTA inputs, in order.
    pub inputs: Vec<InputSummary>,
    /// Records read; with `translation`, their peptides, and the contigs that have none.
    pub records: u64,
    /// What `--translate` made of the contigs; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<TranslationSummary>,
    /// Where the peptides lie on the contigs; absent without `--translate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peptides: Option<ListedFile>,
    /// Records in a shard.
    pub accepted: u64,
    /// Records in `rejects.csv`, by reason; every reason is listed.
    pub rejected: BTreeMap<Reason, u64>,
    /// The [`ByteDigest`](crate::ByteDigest) of `rejects.csv`.
    pub rejects_digest: String,
    /// The [`ByteDigest`](crate::ByteDigest) of `renamed.csv`; absent if no record was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_digest: Option<String>,
    /// The list of records whose residues an earlier record has; absent without `--dedup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aliases: Option<ListedFile>,
    /// The list of records whose residues an earlier dataset has, and the datasets; absent without `--known`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownSummary>,
    /// Rows in all shards: accepted records, or their windows.
    pub rows: u64,
    /// Residues in all rows. Residues in the overlap of two windows count twice.
    pub residues: u64,
    /// Tokens in all rows: residues, and two special tokens per row.
    pub tokens: u64,
    /// How often each policy changed a record; every kind of change is listed.
    pub changed: BTreeMap<String, u64>,
    /// Lengths of the accepted proteins in residues, before truncation and windows.
    pub lengths: LengthSummary,
    /// The shards, in order.
    pub shards: Vec<ShardSummary>,
}

impl Manifest {
    /// Returns name and kind of the lists of records that may be beside the shards, and the entries of those that are.
    pub fn lists(&self) -> [(&'static str, Kind, Option<&ListedFile>); 3] {
        let known = self.known.as_ref().map(|known| &known.list);
        [
            (ALIASES_FILE, Kind::Aliases, self.aliases.as_ref()),
            (KNOWN_FILE, Kind::Known, known),
            (PEPTIDES_FILE, Kind::Peptides, self.peptides.as_ref()),
        ]
    }

    /// Iterates over the files that a complete set has beside its manifest: the name, the kind of a Parquet file, and the digest of its
    /// rows; of a text file, that of its bytes.
    pub fn files(&self) -> impl Iterator<Item = (&str, Option<Kind>, &str)> {
        let shards = self.shards.iter();
        let shards = shards.map(|shard| (&*shard.file, Some(Kind::Shard), &*shard.digest));
        let lists = self.lists().into_iter();
        let lists = lists.filter_map(|(name, kind, list)| Some((name, Some(kind), &*list?.digest)));
        let renamed = self.renamed_digest.as_deref();
        let renamed = renamed.map(|digest| (RENAMED_FILE, None, digest));
        let rejects = iter::once((REJECTS_FILE, None, &*self.rejects_digest));
        shards.chain(lists).chain(rejects).chain(renamed)
    }

    /// Returns the work that made the set.
    pub fn work(&self) -> Provenance {
        let inputs = self.inputs.iter().map(|input| input.digest.clone());
        Provenance {
            version: self.version.clone(),
            options: self.options.clone(),
            ..Provenance::new(&self.tool, inputs.collect())
        }
    }
}

impl Sealed for Manifest {
    const WHAT: &str = "manifest of fasta-shard";
    const TOOL: &str = "fasta-shard";
}

/// The prefix of the names of shards.
pub const SHARD_PREFIX: &str = "shard-";

/// The prefix of the names of shards with long proteins (`--long-policy separate`). They sort after all others.
pub const LONG_SHARD_PREFIX: &str = "shard-long-";

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

/// What `fasta-shard --translate` made of the records of the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslationSummary {
    /// Records of the inputs.
    pub contigs: u64,
    /// Bases of the contigs that were translated.
    pub bases: u64,
    /// Characters that are no bases, and were translated as N.
    pub bases_replaced_by_n: u64,
    /// Peptides of at least `--min-residues` residues.
    pub peptides: u64,
    /// Shorter peptides, which are not listed.
    pub peptides_too_short: u64,
}

/// One shard file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSummary {
    /// The file's name, relative to the manifest.
    pub file: String,
    /// Its rows.
    pub rows: u64,
    /// Residues in its rows.
    pub residues: u64,
    /// Tokens in its rows.
    pub tokens: u64,
    /// Its row digest.
    pub digest: String,
}

/// The records that are in no shard because earlier datasets have their residues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownSummary {
    /// Their list.
    #[serde(flatten)]
    pub list: ListedFile,
    /// The datasets. The column `dataset` of the list counts them from 0.
    pub datasets: Vec<KnownDataset>,
    /// What made the vectors of all datasets. The embeddings of the shards must be made by the same work.
    pub work: EmbeddingWork,
}

/// An earlier dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDataset {
    /// Its sample, if it has a name.
    pub sample: Option<String>,
    /// Its rows.
    pub rows: u64,
    /// The row digest of all its parts together. It does not depend on their number.
    pub digest: String,
}

/// The distribution of sequence lengths, in residues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LengthSummary {
    /// The shortest; null if no record was accepted.
    pub min: Option<u64>,
    /// The longest; null if no record was accepted.
    pub max: Option<u64>,
    /// The mean; null if no record was accepted.
    pub mean: Option<f64>,
    /// Counts in bins, which start at [`length_bin_edges`].
    pub histogram: Vec<LengthBin>,
}

/// One bin of the length histogram: lengths of at least `from` residues and less than the next bin's `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthBin {
    /// The smallest length in the bin.
    pub from: u64,
    /// The number of sequences in the bin.
    pub count: u64,
}

/// Iterates over the starts of the bins of the length histogram: steps of 50 residues up to 1000, then doubling.
pub fn length_bin_edges() -> impl Iterator<Item = u64> {
    (0..1000)
        .step_by(50)
        .chain((0..).map(|doubling| 1000 << doubling).take(8))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ByteDigest, ContentError};

    fn manifest() -> Manifest {
        Manifest {
            contract: "1".into(),
            tool: "fasta-shard".into(),
            version: "0.1.0".into(),
            options: [("max_residues".to_owned(), Value::from(1022))].into(),
            records: 3,
            accepted: 2,
            rejected: [(Reason::Empty, 1)].into(),
            rejects_digest: ByteDigest::compute(b"ordinal,id,length,reason\n0,a,0,empty\n")
                .to_string(),
            rows: 2,
            residues: 20,
            tokens: 24,
            lengths: LengthSummary {
                min: Some(7),
                max: Some(13),
                mean: Some(10.1),
                histogram: Vec::new(),
            },
            ..Manifest::default()
        }
    }

    #[test]
    fn a_manifest_is_read_back_and_every_change_is_an_error() {
        let text = manifest().to_json().into_bytes();
        assert_eq!(Manifest::from_json(&text), Ok(manifest()));
        let plain: Manifest = serde_json::from_slice(&text).expect("JSON for any reader");
        assert_eq!(plain, manifest());
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                let read = Manifest::from_json(&damaged);
                assert_eq!(
                    read,
                    Err(ContentError::broken_seal()),
                    "byte {at} bit {bit}"
                );
            }
            let cut = Manifest::from_json(&text[..at]);
            assert_eq!(cut, Err(ContentError::broken_seal()), "cut at {at}");
        }
        assert!(matches!(
            Manifest::from_json(b"{\"name\": \"a web app\"}"),
            Err(ContentError::Foreign(_))
        ));
    }

    #[test]
    fn a_sealed_file_of_another_contract_is_foreign_whatever_its_entries() {
        let expected = "expected file contract version 1, found '2'".to_owned();
        let mut other = manifest();
        other.contract = "2".into();
        for text in [other.to_json(), crate::seal(&json!({ "contract": "2" }))] {
            let read = Manifest::from_json(text.as_bytes());
            assert_eq!(read, Err(ContentError::Foreign(expected.clone())));
        }
        let without = crate::seal(&json!({ "tool": "fasta-shard" }));
        let error = Manifest::from_json(without.as_bytes()).expect_err("no version");
        assert!(error.to_string().contains("`contract`"), "{error}");
    }
}
