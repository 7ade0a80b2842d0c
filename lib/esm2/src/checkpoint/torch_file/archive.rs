//! The records of a PyTorch file: a zip archive without compression.

use std::collections::BTreeMap;

use plmkit_contract::Quoted;
use rawzip::{CompressionMethod, ZipArchive};

use super::damaged;

/// More records than any checkpoint has. PyTorch writes one for each tensor.
const MAX_RECORDS: usize = 1 << 16;

/// A record and its CRC-32 in the archive's directory: 0 where PyTorch was told to save none.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Record<'a> {
    pub(in super::super) bytes: &'a [u8],
    pub(in super::super) crc: u32,
}

/// Returns the records of an archive by their names in its one folder. Copies no record.
pub(in super::super) fn records(bytes: &[u8]) -> Result<BTreeMap<String, Record<'_>>, String> {
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
        let record = Record {
            bytes: &bytes[start as usize..end as usize],
            crc: entry.crc32(),
        };
        if paths.insert(path.to_owned(), record).is_some() || paths.len() > MAX_RECORDS {
            return Err(no_archive());
        }
    }
    let folder = paths
        .keys()
        .find_map(|path| path.strip_suffix("data.pkl"))
        .filter(|folder| folder.find('/') == folder.len().checked_sub(1))
        .ok_or_else(|| damaged("no record data.pkl"))?;
    let records = paths
        .iter()
        .filter_map(|(path, record)| Some((path.strip_prefix(folder)?.to_owned(), *record)));
    Ok(records.collect())
}
