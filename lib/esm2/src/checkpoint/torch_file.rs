//! PyTorch weight files: what `torch.save` makes of a state dictionary, since version 1.6.
//!
//! The file is a zip archive with a pickle, `data.pkl`, that describes the tensors, and a record of bytes for each
//! storage. A pickle is a program, and no part of one is run here: [`pickle`] knows the few instructions and classes
//! that make a dictionary of tensors, and refuses all others. The unpickler of libtorch cannot be used: version 2.11
//! fails on the `OrderedDict` of every state dictionary, trusts the sizes that a pickle states for its storages, and
//! follows nested values as deep as the stack goes.

mod archive;
mod pickle;

use plmkit_contract::Quoted;

pub(super) use self::archive::{Record, records};

use self::pickle::{Storage, TensorEntry, state_dictionary};
use super::tensor::TensorData;

/// Returns the tensors of a file by name, or why it cannot be read.
pub(super) fn tensors(bytes: &[u8]) -> Result<Vec<(String, TensorData<'_>)>, String> {
    let records = records(bytes)?;
    let record = |name: &str| records.get(name).map(|record| record.bytes);
    // libtorch no longer runs on big-endian machines.
    if record("byteorder").is_some_and(|order| order != b"little") {
        return Err(damaged("byte order: expected little"));
    }
    let pickle = record("data.pkl").ok_or_else(|| damaged("no record data.pkl"))?;
    state_dictionary(pickle)?
        .into_iter()
        .map(|(name, entry)| {
            let tensor = tensor(record, &name, entry)?;
            Ok((name, tensor))
        })
        .collect()
}

fn damaged(reason: impl std::fmt::Display) -> String {
    format!("damaged or not a PyTorch file: {reason}")
}

/// Returns a tensor of the pickle. Checks that it lies in its storage, and that the storage has the size of its record.
fn tensor<'a>(
    record: impl Fn(&str) -> Option<&'a [u8]>,
    name: &str,
    entry: TensorEntry,
) -> Result<TensorData<'a>, String> {
    let Storage { key, dtype, length } = &*entry.storage;
    let (path, width) = (format!("data/{key}"), dtype.bitsize() / 8);
    let bytes = match record(&path) {
        // Some versions write no record for an empty storage.
        None if *length == 0 => &[],
        None => return Err(damaged(format!("no record {}", Quoted(&path)))),
        Some(bytes) => bytes,
    };
    if length.checked_mul(width) != Some(bytes.len()) {
        return Err(damaged(format!(
            "record {}: expected {length} values of {dtype}, found {} bytes",
            Quoted(&path),
            bytes.len()
        )));
    }
    // A tensor with more values than its storage repeats values. No weight does, and a copy of it would take more memory
    // than the file has bytes.
    let mut sizes = entry.shape.iter();
    let values = sizes.try_fold(1, |values: usize, &size| values.checked_mul(size));
    let fits = |last: usize| last <= *length;
    if !end(&entry).is_some_and(fits) || !values.is_some_and(fits) {
        return Err(damaged(format!(
            "tensor {}: expected to lie in its storage of {length} values",
            Quoted(name)
        )));
    }
    // The offset of an empty tensor can lie beyond the storage.
    let bytes = &bytes[entry.offset.saturating_mul(width).min(bytes.len())..];
    let TensorEntry { shape, strides, .. } = entry;
    Ok(TensorData::strided(*dtype, shape, &strides, bytes))
}

/// Returns the index after the last value of a tensor in its storage.
fn end(entry: &TensorEntry) -> Option<usize> {
    if entry.shape.contains(&0) {
        return Some(0);
    }
    let mut dimensions = entry.shape.iter().zip(&entry.strides);
    let last = dimensions.try_fold(entry.offset, |last, (&size, &stride)| {
        last.checked_add((size - 1).checked_mul(stride)?)
    });
    last?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::*;

    /// Parameters of one layer, as `torch.save` writes them.
    const SMALLEST: &[u8] = include_bytes!("../../../../test-data/smallest.bin");

    #[test]
    fn every_tensor_has_its_name_and_its_values() {
        let tensors = tensors(SMALLEST).unwrap();
        assert_eq!(tensors.len(), 20);
        for (name, tensor) in tensors {
            assert_eq!(tensor.dtype, Dtype::F32, "{name}");
            let ones = 1_f32.to_le_bytes().repeat(tensor.shape.iter().product());
            assert_eq!(tensor.bytes, ones, "{name}");
        }
    }

    /// No damage panics, and a truncated file is an error.
    #[test]
    fn damage_at_any_byte() {
        for length in 0..SMALLEST.len() {
            assert!(tensors(&SMALLEST[..length]).is_err(), "{length}");
        }
        let mut bytes = SMALLEST.to_vec();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                bytes[at] ^= flip;
                if let Ok(tensors) = tensors(&bytes) {
                    let mut lengths = tensors.iter().map(|(_, tensor)| tensor.bytes.len());
                    assert!(lengths.all(|length| length <= 264));
                }
                bytes[at] ^= flip;
            }
        }
    }
}
