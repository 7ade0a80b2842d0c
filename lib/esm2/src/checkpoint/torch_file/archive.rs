//! The zip archive of a PyTorch file.

use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_kit::Quoted;
use rawzip::{CompressionMethod, ZipArchive};

/// More records than any checkpoint has. PyTorch writes one for each tensor.
const MAX_RECORDS: usize = 1 << 16;

/// The record of the pickle.
pub(super) const PICKLE: &str = "data.pkl";

/// Where a record lies in the file, and its CRC-32 in the archive's directory: 0 where PyTorch was told to save none.
pub(in super::super) type Record = (Range<usize>, u32);

pub(super) fn damaged(reason: impl std::fmt::Display) -> String {
    format!("damaged or not a PyTorch file: {reason}")
}

/// Returns the records of an archive by their names in its one folder, of which one is the pickle.
pub(in super::super) fn records(bytes: &[u8]) -> Result<BTreeMap<String, Record>, String> {
    // A bare pickle of protocol 2.
    if bytes.starts_with(b"\x80\x02") {
        return Err(
            "saved in the format of PyTorch before 1.6, which is not read: save the model again \
             with transformers' save_pretrained"
                .to_owned(),
        );
    }
    let no_archive = || damaged("no zip archive in it, or an end is missing");
    let archive = ZipArchive::from_slice(bytes).map_err(|_| no_archive())?;
    let mut entries = archive.entries();
    let mut paths = BTreeMap::new();
    while let Some(entry) = entries.next_entry().map_err(|_| no_archive())? {
        let path = str::from_utf8(entry.file_path().as_bytes()).map_err(|_| no_archive())?;
        if entry.compression_method() != CompressionMethod::STORE
            || entry.compressed_size_hint() != entry.uncompressed_size_hint()
            || entry.flags().is_encrypted()
        {
            return Err(format!(
                "record {} is compressed or encrypted: save the model again with transformers' \
                 save_pretrained",
                Quoted(path)
            ));
        }
        let found = archive.get_entry(entry.wayfinder());
        let found = found
            .map_err(|_| damaged(format!("record {} reaches beyond the file", Quoted(path))))?;
        let (start, end) = found.compressed_data_range();
        let record = (start as usize..end as usize, entry.crc32());
        if paths.insert(path.to_owned(), record).is_some() || paths.len() > MAX_RECORDS {
            return Err(no_archive());
        }
    }
    let folder = paths
        .keys()
        .find_map(|path| path.strip_suffix(PICKLE))
        .filter(|folder| folder.find('/') == folder.len().checked_sub(1))
        .ok_or_else(|| damaged("no record data.pkl"))?;
    let records = paths
        .iter()
        .filter_map(|(path, record)| Some((path.strip_prefix(folder)?.to_owned(), record.clone())));
    Ok(records.collect())
}

/// Compares a record of a file with its CRC-32.
pub(in super::super) fn check_sum(bytes: &[u8], name: &str, record: &Record) -> Result<(), String> {
    let (place, expected) = record;
    if *expected == 0 {
        return Ok(());
    }
    let found = crc32fast::hash(&bytes[place.clone()]);
    if found == *expected {
        return Ok(());
    }
    let name = Quoted(name);
    Err(format!(
        "damaged: record {name} has CRC-32 {found:08x}, expected {expected:08x}"
    ))
}
