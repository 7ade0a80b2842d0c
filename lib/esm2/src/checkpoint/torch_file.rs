//! PyTorch weight files: what `torch.save` makes of a state dictionary, since version 1.6.
//!
//! The file is a zip archive without compression. It has a pickle, `data.pkl`, that describes the tensors, and a record of bytes for
//! each storage. A pickle is a program, and no part of one is run here: [`pickle`] knows the few instructions and classes
//! that make a dictionary of tensors, and refuses all others. The unpickler of libtorch cannot be used: version 2.11
//! fails on the `OrderedDict` of every state dictionary, trusts the sizes that a pickle states for its storages, and
//! follows nested values as deep as the stack goes.

mod pickle;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use plmkit_contract::Quoted;
use rawzip::{CompressionMethod, ZipArchive};

use self::pickle::state_dictionary;
use super::stored_tensor::StoredTensor;
use super::weight_file::WeightFile;

/// More records than any checkpoint has. PyTorch writes one for each tensor.
const MAX_RECORDS: usize = 1 << 16;

/// The record of the pickle.
const PICKLE: &str = "data.pkl";

/// Where a record lies in the file, and its CRC-32 in the archive's directory: 0 where PyTorch was told to save none.
pub(super) type Record = (Range<usize>, u32);

/// Returns the tensors of a file by name, or why it cannot be read.
pub(super) fn tensors(file: &Arc<WeightFile>) -> Result<Vec<(String, StoredTensor)>, String> {
    let bytes = file.bytes();
    let records = records(bytes)?;
    // libtorch no longer runs on big-endian machines.
    let order = records.get("byteorder");
    if order.is_some_and(|(place, _)| bytes[place.clone()] != *b"little") {
        return Err(damaged("byte order: expected little"));
    }
    let tensors = state_dictionary(file, &records);
    // A wrong checksum explains why a pickle cannot be read, or has other tensors.
    check_sum(bytes, PICKLE, &records[PICKLE])?;
    tensors
}

fn damaged(reason: impl std::fmt::Display) -> String {
    format!("damaged or not a PyTorch file: {reason}")
}

/// Returns the records of an archive by their names in its one folder, of which one is the pickle.
pub(super) fn records(bytes: &[u8]) -> Result<BTreeMap<String, Record>, String> {
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
pub(super) fn check_sum(bytes: &[u8], name: &str, record: &Record) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use safetensors::Dtype;

    use super::*;

    /// Parameters of one layer, as `torch.save` writes them.
    const SMALLEST: &[u8] = include_bytes!("../../../../test-data/smallest.bin");

    fn tensors_of(path: &Path, bytes: &[u8]) -> Result<Vec<(String, StoredTensor)>, String> {
        // In place: a file that is truncated and written again is flushed to the disk.
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        tensors(&Arc::new(
            WeightFile::open(path.to_owned(), Vec::new()).unwrap(),
        ))
    }

    #[test]
    fn every_tensor_has_its_name_and_its_values() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = tensors_of(&folder.path().join("a.bin"), SMALLEST).unwrap();
        assert_eq!(tensors.len(), 20);
        for (name, tensor) in tensors {
            assert_eq!(tensor.dtype, Dtype::F32, "{name}");
            let ones = 1_f32.to_le_bytes().repeat(tensor.shape.iter().product());
            assert_eq!(tensor.bytes()[..], ones, "{name}");
        }
    }

    /// No damage panics, and a truncated file is an error.
    #[test]
    fn damage_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        for length in 0..SMALLEST.len() {
            assert!(tensors_of(&path, &SMALLEST[..length]).is_err(), "{length}");
        }
        // Without checksums, which would refuse most damage.
        let mut bytes = SMALLEST.to_vec();
        for at in 0..bytes.len() - 4 {
            if bytes[at..].starts_with(b"PK\x01\x02") {
                bytes[at + 16..at + 20].fill(0);
            }
        }
        assert!(tensors_of(&path, &bytes).is_ok());
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                bytes[at] ^= flip;
                if let Ok(tensors) = tensors_of(&path, &bytes) {
                    let mut lengths = tensors.iter().map(|(_, tensor)| tensor.bytes().len());
                    assert!(lengths.all(|length| length <= 264));
                }
                bytes[at] ^= flip;
            }
        }
    }
}
