//! PyTorch weight files: what `torch.save` makes of a state dictionary, since version 1.6.
//!
//! The file is a zip archive without compression. It has a pickle, `data.pkl`, that describes the tensors, and a record of bytes for
//! each storage. A pickle is a program, and no part of one is run here: [`pickle`] knows the few instructions and classes
//! that make a dictionary of tensors, and refuses all others. The unpickler of libtorch cannot be used: version 2.11
//! fails on the `OrderedDict` of every state dictionary, trusts the sizes that a pickle states for its storages, and
//! follows nested values as deep as the stack goes.

mod archive;
mod pickle;

use std::sync::Arc;

use archive::{PICKLE, damaged};
pub(super) use archive::{check_sum, records};
use pickle::state_dictionary;

use super::stored_tensor::StoredTensor;
use super::weight_file::WeightFile;

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
