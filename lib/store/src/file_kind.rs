//! Detects the kind of a file: for the message about an unexpected one, and for what an output may replace.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

use plmkit_contract::{
    DATASET_FILE, Kind, MANIFEST_FILE, REJECTS_FILE, REJECTS_HEADER, RENAMED_HEADER, key,
};
use plmkit_kit::is_stream;
use strum::EnumProperty;

use crate::StoreError;
use crate::input::open_input;

/// The most bytes that are read at each end of a file.
const SAMPLE_BYTES: u64 = 1 << 16;

/// The length of the longest magic.
const MAGIC_BYTES: u64 = 6;

/// The beginning of a page, with a policy that pages of others have hardly.
const HTML_REPORT: &[u8] = b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta http-equiv=\"Content-Security-Policy\"";

/// Files beside the data, which nothing else can write again.
const NAMES_OF_DATA: [&str; 3] = [DATASET_FILE, MANIFEST_FILE, REJECTS_FILE];

/// A kind of file. It displays as in a message. `maker` ends the message that such a file is missing.
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
    /// A list of renamed records of `fasta-shard`.
    #[strum(to_string = "a list of renamed records")]
    Renamed,
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
    /// Parquet without metadata of plmkit.
    #[strum(to_string = "a Parquet file of another program")]
    Parquet,
    /// A report of any program.
    #[strum(to_string = "a report")]
    Report,
    /// A table of `query-embeddings` in Parquet.
    #[strum(to_string = "a table of hits")]
    Hits,
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
            if find(&end, b"plmkit.").is_none() && end.ends_with(b"PAR1") {
                return Some(Self::Parquet);
            }
            return match kind_in(&end) {
                Some(kind) => kind.parse().ok(),
                None => find(&end, key::TOOL.as_bytes()).map(|_| Self::Hits),
            };
        }
        let text = without_bom(&start).trim_ascii_start();
        let beginnings: [(&[u8], Self); 10] = [
            (b">", Self::Fasta),
            (b"\x1f\x8b", Self::Compressed),
            (b"\x28\xb5\x2f\xfd", Self::Compressed),
            (b"ARROW1", Self::Batches),
            (REJECTS_HEADER.as_bytes(), Self::Rejects),
            (RENAMED_HEADER.as_bytes(), Self::Renamed),
            (b"{\"type\":\"", Self::Events),
            (b"timestamp,", Self::Samples),
            (b"{\n  \"report_version\": ", Self::Report),
            (HTML_REPORT, Self::Report),
        ];
        let known = beginnings
            .into_iter()
            .find(|(beginning, _)| text.starts_with(beginning));
        if let Some((_, kind)) = known {
            return Some(kind);
        }
        // Tables for MultiQC, and estimates.
        let end = || read_sample(&file, length.saturating_sub(SAMPLE_BYTES), length);
        let has = |bytes: &[u8], wanted: &[u8]| find(bytes, wanted).is_some();
        let is_table = text.starts_with(b"{\n  \"data\": {")
            && end().is_ok_and(|end| has(&end, b"\n  \"id\": \"plmkit_"));
        let is_estimate = text.starts_with(b"{\n  \"model\": \"")
            && has(text, b",\n  \"shape\": {\n    \"layers\": ");
        if is_table || is_estimate {
            return Some(Self::Report);
        }
        let head = text
            .starts_with(b"{")
            .then(|| &text[..text.len().min(200)])?;
        let of_tools: [(&[u8], Self); 3] = [
            (b"\"tool\": \"fasta-shard\"", Self::Manifest),
            (b"\"tool\": \"pack-batches\"", Self::Report),
            (b"\"tool\": \"validate-embeddings\"", Self::Report),
        ];
        let mut of_tools = of_tools.into_iter();
        of_tools.find_map(|(tool, kind)| find(head, tool).map(|_| kind))
    }

    /// Returns the error that the file at `path` has another kind than this, if it has a known one.
    pub fn mistaken(self, path: &Path) -> Option<StoreError> {
        // Of the Parquet of others its reader says what is wrong.
        let other = |found: &Self| ![self, Self::Parquet].contains(found);
        let found = Self::detect(path).filter(other)?;
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

/// Whether a report may replace what is at `path`: nothing, a stream, an empty file or a report.
pub fn is_report_or_free(path: &Path) -> bool {
    let is_report = || FileKind::detect(path) == Some(FileKind::Report) && !has_name_of_data(path);
    file_at(path).is_none_or(|found| found.len() == 0 || is_report())
}

/// What an output may replace besides nothing, a stream and an empty file. It never has a name of data.
#[derive(Clone, Copy, Debug)]
pub enum Replaceable<'a> {
    /// A file of this kind, which may be damaged: it begins or ends with these bytes.
    Damaged(FileKind, &'a [u8]),
    /// A file of this kind.
    Whole(FileKind),
    /// A file of no known kind that begins with these bytes.
    Starts(&'a [u8]),
    /// Text of no other known kind than this, if each line may stand in such a file. The lines of a file are seen in their order, each
    /// with the first one.
    Lines(Option<FileKind>, fn(&str, &str) -> bool),
}

/// Whether a line is of a table whose first line has no columns but some of these, the first one first, of a separator that is in no cell.
pub fn is_line_of(columns: &[&str], first: &str, line: &str) -> bool {
    let separator = separator(first);
    let mut cells = first.split(separator);
    let begins = first.split(separator).next() == columns.first().copied();
    begins && cells.all(|cell| columns.contains(&cell)) && has_as_many(first, line)
}

/// Whether two lines of a table have as many cells, of a separator that is in no cell.
pub fn has_as_many(first: &str, line: &str) -> bool {
    let separator = separator(first);
    line.matches(separator).count() == first.matches(separator).count()
}

fn separator(first: &str) -> char {
    if first.contains('\t') { '\t' } else { ',' }
}

impl Replaceable<'_> {
    /// Whether an output may replace what is at `path`.
    pub fn includes(self, path: &Path) -> bool {
        let Some(found) = file_at(path).filter(|found| found.len() > 0) else {
            return !has_name_of_data(path);
        };
        let sample = |start| read_sample(&File::open(path)?, start, found.len());
        let start = sample(0).unwrap_or_default();
        let end = sample(found.len().saturating_sub(MAGIC_BYTES)).unwrap_or_default();
        let is_marked = |mark: &[u8]| start.starts_with(mark) || end.ends_with(mark);
        let kind = FileKind::detect(path);
        let is_own = match self {
            Self::Damaged(own, mark) => kind.is_none_or(|kind| kind == own) && is_marked(mark),
            Self::Whole(own) => kind == Some(own),
            Self::Starts(mark) => kind.is_none() && start.starts_with(mark),
            Self::Lines(own, is_line) => {
                (kind.is_none() || kind == own) && all_lines(path, is_line).unwrap_or(false)
            }
        };
        is_own && !has_name_of_data(path)
    }
}

/// Whether all lines of a file are such lines, of UTF-8.
fn all_lines(path: &Path, is_line: fn(&str, &str) -> bool) -> io::Result<bool> {
    let mut first = None;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        let first = first.get_or_insert_with(|| line.clone());
        if !is_line(first, &line) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is at `path`, if it is a file, and none that a stream is redirected to.
fn file_at(path: &Path) -> Option<Metadata> {
    let found = path.metadata().ok()?;
    (found.is_file() && !is_stream(path)).then_some(found)
}

/// Whether a path has the name of a dataset's metadata and lists, or of the log of a run.
fn has_name_of_data(path: &Path) -> bool {
    // A link may lead to it.
    let real = path.canonicalize();
    let path = real.as_deref().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    NAMES_OF_DATA.contains(&&*name) || name.ends_with(".jsonl") || name.ends_with(".samples.csv")
}

fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
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
    let key = key::KIND.as_bytes();
    let [_, length, rest @ ..] = &end[find(end, key)? + key.len()..] else {
        return None;
    };
    str::from_utf8(rest.get(..usize::from(*length))?).ok()
}

pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_replaces_its_own_kind_and_a_report_reports_alone() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("r");
        let is_line =
            |first: &str, line: &str| is_line_of(&["query", "target", "rank"], first, line);
        let hits = Replaceable::Lines(None, is_line);
        let fasta = Replaceable::Whole(FileKind::Fasta);
        let batches = Replaceable::Damaged(FileKind::Batches, b"ARROW1");
        let matrix = Replaceable::Starts(b"NUMPY");
        for (text, replacing) in [
            (&b"PAR1\0\0"[..], ""),
            (b"PAR1\x15\0PAR1", ""),
            (b"ARROW1\0\0", "batches"),
            (b"\0RROW1ARROW1", "batches"),
            (b"NUMPY", "matrix"),
            (b"\x89PNG", ""),
            (b"ordinal,id,length,reason,start\n", ""),
            (b">a", "fasta"),
            (b"\n>a", "fasta"),
            (b"\n\n", ""),
            (b"{\n  \"tool\": \"fasta-shard\",", ""),
            (b"{}", ""),
            (b"#!/bin/sh\n", ""),
            (b"sample\trecords\n", ""),
            (b"query\ttarget\n", "hits"),
            (b"query,rank", "hits"),
            (b"query\ttarget\na\tb\n", "hits"),
            (b"query\ttarget\na\tb\nmy note\n", ""),
            (b"target,query\n", ""),
            (b"query\ttarget\tbits\n", ""),
            (b"query\ttarget_name\n", ""),
            (b"", "hits fasta batches matrix"),
        ] {
            fs::write(&path, text).expect("write");
            let all = [
                ("hits", hits),
                ("fasta", fasta),
                ("batches", batches),
                ("matrix", matrix),
            ];
            let can = all.iter().filter(|(_, own)| own.includes(&path));
            let can: Vec<_> = can.map(|(name, _)| *name).collect();
            assert_eq!(can.join(" "), replacing, "{text:?}");
            assert_eq!(is_report_or_free(&path), text.is_empty());
        }
        for name in [
            "dataset.json",
            "rejects.csv",
            "a.events.jsonl",
            "a.samples.csv",
        ] {
            let path = folder.path().join(name);
            assert!(!hits.includes(&path), "{name}");
            fs::write(&path, "query").expect("write");
            assert!(!hits.includes(&path), "{name}");
        }
        for (json, is_report) in [
            ("data\": {},\n  \"id\": \"plmkit_monitor\"", true),
            ("data\": {},\n  \"id\": \"chart\"", false),
            ("model\": \"m\",\n  \"shape\": {\n    \"layers\": 6", true),
            ("model\": \"m\",\n  \"lr\": 1", false),
            ("report_version\": 3,", true),
        ] {
            fs::write(&path, format!("{{\n  \"{json}\n")).expect("write");
            assert_eq!(is_report_or_free(&path), is_report, "{json}");
        }
        for path in [Path::new("/dev/stdout"), folder.path()] {
            assert!(hits.includes(path) && is_report_or_free(path));
        }
    }
}
