//! What a file is that is not the one that was expected.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::StoreError;
use crate::open::open_input;

/// How much of each end of a file is looked at.
const LOOK: u64 = 1 << 16;

/// A kind of file that one of the programs reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Proteins as text.
    Fasta,
    /// gzip or zstd, whatever is in it.
    Compressed,
    /// Of `fasta-shard`.
    Shard,
    /// Of `fasta-shard`, beside its shards.
    Manifest,
    /// Of `fasta-shard` or `gpu-embed`.
    Rejects,
    /// Of `pack-batches`.
    Batches,
    /// Of `gpu-embed`.
    Embeddings,
    /// Of `gpu-embed --events`.
    Events,
    /// Of `monitor-log record`.
    Samples,
}

impl FileKind {
    /// What the file seems to be, by its first bytes and by the kind in the metadata of Parquet. Nothing is verified.
    pub fn detect(path: &Path) -> Option<Self> {
        let file = open_input(path).ok()?;
        let length = file.metadata().ok()?.len();
        let start = read(&file, 0, length).ok()?;
        if start.starts_with(b"PAR1") {
            let end = read(&file, length.saturating_sub(LOOK), length).ok()?;
            return [(Self::Shard, "shard"), (Self::Embeddings, "embeddings")]
                .into_iter()
                .find(|(_, name)| names_kind(&end, name))
                .map(|(kind, _)| kind);
        }
        let text = start.trim_ascii_start();
        let beginnings: [(&[u8], Self); 7] = [
            (b">", Self::Fasta),
            (b"\x1f\x8b", Self::Compressed),
            (b"\x28\xb5\x2f\xfd", Self::Compressed),
            (b"ARROW1", Self::Batches),
            (b"ordinal,id,length,reason", Self::Rejects),
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

    /// The error that the file at `path` is of another kind than this one, if it is of one that is known.
    pub fn mistaken(self, path: &Path) -> Option<StoreError> {
        let found = Self::detect(path).filter(|found| *found != self)?;
        let what = format_args!("expected {self}, found {found}{}", self.maker());
        Some(StoreError::malformed(path, what))
    }

    /// Which program makes such a file, and from what.
    fn maker(self) -> &'static str {
        match self {
            Self::Fasta | Self::Compressed => "",
            Self::Shard => "; fasta-shard makes shards from FASTA files",
            Self::Manifest => "; fasta-shard writes manifest.json beside its shards",
            Self::Rejects => "; fasta-shard and gpu-embed write such lists",
            Self::Batches => "; pack-batches makes batches files from shards",
            Self::Embeddings => "; gpu-embed makes embeddings files from batches files",
            Self::Events => "; gpu-embed --events writes such a log",
            Self::Samples => "; monitor-log record writes such a log",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fasta => "a FASTA file",
            Self::Compressed => "a compressed file",
            Self::Shard => "a shard",
            Self::Manifest => "the manifest of a set of shards",
            Self::Rejects => "a list of rejects",
            Self::Batches => "a batches file",
            Self::Embeddings => "an embeddings file",
            Self::Events => "a log of run events",
            Self::Samples => "a log of GPU samples",
        })
    }
}

impl StoreError {
    /// The same error of an input that should be `expected`; of a file of another kind, which kind it is.
    #[must_use]
    pub fn of_input(self, expected: FileKind) -> Self {
        let mistaken = match &self {
            Self::Malformed { path, .. } | Self::Foreign { path, .. } => expected.mistaken(path),
            _ => None,
        };
        mistaken.unwrap_or(self)
    }
}

/// At most [`LOOK`] bytes from `start` on.
fn read(file: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (length - start).min(LOOK) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// Whether the end of a Parquet file has the entry that says the kind: a key, then a byte for the type, one for the length, and the value.
fn names_kind(end: &[u8], kind: &str) -> bool {
    let key = plmkit_contract::key::KIND.as_bytes();
    find(end, key).is_some_and(|at| {
        let value = end.get(at + key.len() + 2..).unwrap_or_default();
        value.starts_with(kind.as_bytes())
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
