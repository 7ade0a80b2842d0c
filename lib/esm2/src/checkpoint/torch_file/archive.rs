//! The records of a file of PyTorch: a zip archive in which everything is stored as it is.
//!
//! The format is that of PKWARE's APPNOTE 6.3, as far as PyTorch uses it.

use std::collections::BTreeMap;

use plmkit_contract::Quoted;

use super::error::TorchFileError;

/// More records than any checkpoint has: a tensor has one.
const MOST_RECORDS: usize = 1 << 16;

/// The size of the record at the end of an archive, without its comment; and that of the longest comment.
const END: usize = 22;
const COMMENT: usize = 0xffff;

/// The records of an archive, by their names in its one folder.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    records: BTreeMap<&'a str, Record<'a>>,
}

/// A record, and the CRC-32 that the directory has of it: 0 where PyTorch was told to save none.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Record<'a> {
    pub(in super::super) bytes: &'a [u8],
    pub(in super::super) crc: u32,
}

impl<'a> Archive<'a> {
    /// Finds the records. Every place and size is checked against the file; nothing is copied.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, TorchFileError> {
        // A pickle of protocol 2, which is what came before the archives.
        if bytes.starts_with(b"\x80\x02") {
            return Err(TorchFileError::Legacy);
        }
        let damaged = || TorchFileError::damaged("no zip archive in it, or an end is missing");
        let directory = directory(bytes).ok_or_else(damaged)?;
        let mut paths = BTreeMap::new();
        let mut entries = directory;
        while !entries.is_empty() {
            let entry = Entry::first_of(entries).ok_or_else(damaged)?;
            entries = entry.rest;
            if entry.is_packed() {
                return Err(TorchFileError::Packed(entry.path.to_owned()));
            }
            let record = entry.record(bytes).ok_or_else(|| {
                TorchFileError::damaged(format!(
                    "record {} reaches beyond the file",
                    Quoted(entry.path)
                ))
            })?;
            if paths.insert(entry.path, record).is_some() || paths.len() > MOST_RECORDS {
                return Err(damaged());
            }
        }
        let folder = paths
            .keys()
            .find_map(|path| path.strip_suffix("data.pkl"))
            .filter(|folder| folder.find('/') == folder.len().checked_sub(1))
            .ok_or_else(|| TorchFileError::damaged("no record data.pkl"))?;
        let records = paths
            .iter()
            .filter_map(|(path, record)| Some((path.strip_prefix(folder)?, *record)));
        Ok(Self {
            records: records.collect(),
        })
    }

    pub(super) fn record(&self, name: &str) -> Option<&'a [u8]> {
        self.records.get(name).map(|record| record.bytes)
    }

    pub(super) fn into_records(self) -> impl Iterator<Item = (&'a str, Record<'a>)> {
        self.records.into_iter()
    }
}

/// The central directory: what the record at the end of the archive, or the larger one before it, says that it is.
fn directory(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.len().checked_sub(END)?;
    let end = (last.saturating_sub(COMMENT)..=last)
        .rev()
        .find(|&at| bytes[at..].starts_with(b"PK\x05\x06"))?;
    let (mut size, mut start) = (u32_at(bytes, end + 12)?, u32_at(bytes, end + 16)?);
    let locator = end.checked_sub(20).map(|at| &bytes[at..end]);
    if let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
        let end = u64_at(locator, 8)?;
        if !bytes.get(end..)?.starts_with(b"PK\x06\x06") {
            return None;
        }
        size = u64_at(bytes, end.checked_add(40)?)?;
        start = u64_at(bytes, end.checked_add(48)?)?;
    }
    bytes.get(start..start.checked_add(size)?)
}

/// What the directory says of a record.
struct Entry<'a> {
    path: &'a str,
    flags: usize,
    method: usize,
    crc: u32,
    packed: usize,
    size: usize,
    /// Where the record begins, with a header of its own.
    start: usize,
    /// The entries after this one.
    rest: &'a [u8],
}

impl<'a> Entry<'a> {
    fn first_of(bytes: &'a [u8]) -> Option<Self> {
        const HEADER: usize = 46;
        if !bytes.starts_with(b"PK\x01\x02") {
            return None;
        }
        let [path, extra, comment] =
            [28, 30, 32].map(|at| u16_at(bytes, at).unwrap_or(usize::from(u16::MAX)));
        let path_end = HEADER + path;
        let extra_end = path_end + extra;
        let mut entry = Self {
            path: str::from_utf8(bytes.get(HEADER..path_end)?).ok()?,
            flags: u16_at(bytes, 8)?,
            method: u16_at(bytes, 10)?,
            crc: u32::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
            packed: u32_at(bytes, 20)?,
            size: u32_at(bytes, 24)?,
            start: u32_at(bytes, 42)?,
            rest: bytes.get(extra_end + comment..)?,
        };
        entry.widen(bytes.get(path_end..extra_end)?)?;
        Some(entry)
    }

    /// Takes the sizes that do not fit into 32 bits from the extra field 1, where they follow one another.
    fn widen(&mut self, mut fields: &[u8]) -> Option<()> {
        while fields.len() >= 4 {
            let (kind, size) = (u16_at(fields, 0)?, u16_at(fields, 2)?);
            let field = fields.get(4..4 + size)?;
            fields = &fields[4 + size..];
            if kind != 1 {
                continue;
            }
            let mut at = 0;
            for value in [&mut self.size, &mut self.packed, &mut self.start] {
                if *value == u32::MAX as usize {
                    *value = u64_at(field, at)?;
                    at += 8;
                }
            }
        }
        Some(())
    }

    fn is_packed(&self) -> bool {
        const ENCRYPTED: usize = 1;
        self.method != 0 || self.packed != self.size || self.flags & ENCRYPTED != 0
    }

    /// The record in the file.
    fn record(&self, file: &'a [u8]) -> Option<Record<'a>> {
        const HEADER: usize = 30;
        let record = file.get(self.start..)?;
        if !record.starts_with(b"PK\x03\x04") {
            return None;
        }
        let start = HEADER + u16_at(record, 26)? + u16_at(record, 28)?;
        Some(Record {
            bytes: record.get(start..start.checked_add(self.size)?)?,
            crc: self.crc,
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}
