//! Detects the kind of a file, for the message about an unexpected file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plmkit_contract::{Kind, REJECTS_HEADER};
use strum::EnumProperty;

use crate::StoreError;
use crate::input::open_input;

/// The most bytes that are read at each end of a file.
const SAMPLE_BYTES: u64 = 1 << 16;

/// A kind of file that a program reads. It displays as in a message. Its maker is the end of a message that it is missing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::EnumProperty,
)]
pub enum FileKind {
    /// Proteins as text.
    #[strum(to_string = "a FASTA file")]
    Fasta,
    /// A gzip or zstd file with any content.
    #[strum(to_string = "a compressed file")]
    Compressed,
    /// A shard of `fasta-shard`.
    #[strum(serialize = "shard", to_string = "a shard")]
    #[strum(props(maker = "; fasta-shard makes shards from FASTA files"))]
    Shard,
    /// The manifest that `fasta-shard` writes beside its shards.
    #[strum(to_string = "the manifest of a set of shards")]
    #[strum(props(maker = "; fasta-shard writes manifest.json beside its shards"))]
    Manifest,
    /// A list of rejects of `fasta-shard` or `gpu-embed`.
    #[strum(to_string = "a list of rejects")]
    #[strum(props(maker = "; fasta-shard and gpu-embed write such lists"))]
    Rejects,
    /// A batches file of `pack-batches`.
    #[strum(serialize = "batches", to_string = "a batches file")]
    #[strum(props(maker = "; pack-batches makes batches files from shards"))]
    Batches,
    /// An embeddings file of `gpu-embed`.
    #[strum(serialize = "embeddings", to_string = "an embeddings file")]
    #[strum(props(maker = "; gpu-embed makes embeddings files from batches files"))]
    Embeddings,
    /// A list of aliases of `fasta-shard --dedup`.
    #[strum(serialize = "aliases", to_string = "a list of aliases")]
    #[strum(props(maker = "; fasta-shard --dedup writes aliases.parquet beside its shards"))]
    Aliases,
    /// A list of known records of `fasta-shard --known`.
    #[strum(serialize = "known", to_string = "a list of known records")]
    #[strum(props(maker = "; fasta-shard --known writes known.parquet beside its shards"))]
    Known,
    /// A list of peptides of `fasta-shard --translate`.
    #[strum(serialize = "peptides", to_string = "a list of peptides")]
    #[strum(props(maker = "; fasta-shard --translate writes peptides.parquet beside its shards"))]
    Peptides,
    /// The log of `gpu-embed --events`.
    #[strum(to_string = "a log of run events")]
    #[strum(props(maker = "; gpu-embed --events writes such a log"))]
    Events,
    /// The log of `monitor-log record`.
    #[strum(to_string = "a log of GPU samples")]
    #[strum(props(maker = "; monitor-log record writes such a log"))]
    Samples,
}

impl From<Kind> for FileKind {
    /// # Panics
    /// Never: each kind of data file is one of these, by its name.
    fn from(kind: Kind) -> Self {
        let name = kind.to_string();
        name.parse().expect("the name of a kind")
    }
}

impl FileKind {
    /// Guesses the kind of a file from its first bytes, or from the metadata of a Parquet file. Does not verify the file.
    pub fn detect(path: &Path) -> Option<Self> {
        let file = open_input(path).ok()?;
        let length = file.metadata().ok()?.len();
        let start = read_sample(&file, 0, length).ok()?;
        if start.starts_with(b"PAR1") {
            let end = read_sample(&file, length.saturating_sub(SAMPLE_BYTES), length).ok()?;
            return kind_in(&end)?.parse().ok();
        }
        let text = start.trim_ascii_start();
        let beginnings: [(&[u8], Self); 7] = [
            (b">", Self::Fasta),
            (b"\x1f\x8b", Self::Compressed),
            (b"\x28\xb5\x2f\xfd", Self::Compressed),
            (b"ARROW1", Self::Batches),
            (REJECTS_HEADER.as_bytes(), Self::Rejects),
            (b"{\"type\":\"", Self::Events),
            (b"timestamp,", Self::Samples),
        ];
        let known = beginnings
            .into_iter()
            .find(|(beginning, _)| text.starts_with(beginning));
        let is_manifest = || find(text, b"\"tool\": \"fasta-shard\"").is_some_and(|at| at < 200);
        known
            .map(|(_, kind)| kind)
            .or_else(|| (text.starts_with(b"{") && is_manifest()).then_some(Self::Manifest))
    }

    /// Returns the error that the file at `path` has another kind than this, if it has a known one.
    pub fn mistaken(self, path: &Path) -> Option<StoreError> {
        let found = Self::detect(path).filter(|found| *found != self)?;
        let maker = self.get_str("maker").unwrap_or_default();
        let what = format_args!("expected {self}, found {found}{maker}");
        Some(StoreError::malformed(path, what))
    }
}

impl StoreError {
    /// Replaces the error of an input that should be `expected`, if the file has another known kind.
    #[must_use]
    pub fn of_input(self, expected: impl Into<FileKind>) -> Self {
        let mistaken = match &self {
            Self::Malformed { path, .. } | Self::Foreign { path, .. } => {
                expected.into().mistaken(path)
            }
            _ => None,
        };
        mistaken.unwrap_or(self)
    }
}

/// Reads at most [`SAMPLE_BYTES`] from `start` on.
fn read_sample(file: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (length - start).min(SAMPLE_BYTES) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// Returns the metadata entry of the kind in the end of a Parquet file: the key, a byte for the type, a byte for the length, the
/// value.
fn kind_in(end: &[u8]) -> Option<&str> {
    let key = plmkit_contract::key::KIND.as_bytes();
    let [_, length, rest @ ..] = &end[find(end, key)? + key.len()..] else {
        return None;
    };
    str::from_utf8(rest.get(..usize::from(*length))?).ok()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
