//! Weight files of PyTorch: what `torch.save` makes of a state dictionary, since version 1.6.
//!
//! A zip archive with a pickle, `data.pkl`, that says what tensors there are, and a record of bytes for each storage.
//! A pickle is a program, and no part of one is run here: [`pickle`] knows the few instructions and the few classes
//! that a dictionary of tensors is made of, and refuses everything else. libtorch has an unpickler of its own, which
//! does not do: version 2.11 fails on the `OrderedDict` that every state dictionary is, believes the sizes that a
//! pickle claims for its storages, and follows nested values as deep as the stack goes.

mod archive;
mod error;
mod pickle;

use plmkit_contract::Quoted;
use safetensors::Dtype;

pub(super) use self::archive::Record;

use self::archive::Archive;
use self::pickle::{Sketch, Storage};
use super::tensor::StoredTensor;

pub use self::error::TorchFileError;

/// The tensors in the bytes of a file, by name. Nothing is copied: they lie in the file.
pub(super) fn tensors(bytes: &[u8]) -> Result<Vec<(String, StoredTensor<'_>)>, TorchFileError> {
    let archive = Archive::parse(bytes)?;
    // The other order is that of machines that libtorch does not run on any more.
    if archive
        .record("byteorder")
        .is_some_and(|order| order != b"little")
    {
        return Err(TorchFileError::damaged("byte order: expected little"));
    }
    let pickle = archive
        .record("data.pkl")
        .ok_or_else(|| TorchFileError::damaged("no record data.pkl"))?;
    pickle::state_dictionary(pickle)?
        .into_iter()
        .map(|(name, sketch)| {
            let tensor = tensor(&archive, &name, &sketch)?;
            Ok((name, tensor))
        })
        .collect()
}

/// The records of a file, by name.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<(&str, Record<'_>)>, TorchFileError> {
    Ok(Archive::parse(bytes)?.into_records().collect())
}

/// The tensor that a pickle describes, if it lies in its storage and the storage in its record.
fn tensor<'a>(
    archive: &Archive<'a>,
    name: &str,
    sketch: &Sketch,
) -> Result<StoredTensor<'a>, TorchFileError> {
    let Storage { key, dtype, length } = &*sketch.storage;
    let (record, width) = (format!("data/{key}"), width(*dtype));
    // A storage without values has no record in some versions.
    let bytes = match archive.record(&record) {
        None if *length == 0 => &[],
        None => {
            return Err(TorchFileError::damaged(format!(
                "no record {}",
                Quoted(&record)
            )));
        }
        Some(bytes) => bytes,
    };
    if length.checked_mul(width) != Some(bytes.len()) {
        return Err(TorchFileError::damaged(format!(
            "record {}: expected {length} values of {dtype}, found {} bytes",
            Quoted(&record),
            bytes.len()
        )));
    }
    let outside = || {
        TorchFileError::damaged(format!(
            "tensor {}: expected to lie in its storage of {length} values",
            Quoted(name)
        ))
    };
    let end = end(sketch).ok_or_else(outside)?;
    // More values than there are in the storage would be one value many times over: no weight is stored so, and copying
    // it would take more memory than the file has bytes.
    let values = sketch
        .shape
        .iter()
        .try_fold(1, |values: usize, &size| values.checked_mul(size));
    if end > *length || values.is_none_or(|values| values > *length) {
        return Err(outside());
    }
    // Without values, a tensor may begin anywhere.
    let bytes = &bytes[sketch.offset.saturating_mul(width).min(bytes.len())..];
    Ok(StoredTensor::strided(
        *dtype,
        width,
        sketch.shape.clone(),
        &sketch.strides,
        bytes,
    ))
}

/// The index after the last value of a tensor in its storage.
fn end(sketch: &Sketch) -> Option<usize> {
    if sketch.shape.contains(&0) {
        return Some(0);
    }
    let last = sketch
        .shape
        .iter()
        .zip(&sketch.strides)
        .try_fold(sketch.offset, |last, (&size, &stride)| {
            last.checked_add((size - 1).checked_mul(stride)?)
        })?;
    last.checked_add(1)
}

/// The bytes of a value.
fn width(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F64 | Dtype::I64 => 8,
        Dtype::F32 | Dtype::I32 => 4,
        Dtype::F16 | Dtype::BF16 | Dtype::I16 => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters of one layer, as `torch.save` writes them.
    const SMALLEST: &[u8] = include_bytes!("../../../../test-data/smallest.bin");

    #[test]
    fn every_tensor_has_its_name_and_its_values() {
        let tensors = tensors(SMALLEST).unwrap();
        assert_eq!(tensors.len(), 20);
        for (name, tensor) in tensors {
            assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
            let ones = 1_f32.to_le_bytes().repeat(tensor.shape().iter().product());
            assert_eq!(&tensor.bytes(0..ones.len())[..], &ones[..], "{name}");
        }
    }

    /// None of these panics, and a file that has lost its end is no archive.
    #[test]
    fn damage_anywhere() {
        for length in 0..SMALLEST.len() {
            assert!(tensors(&SMALLEST[..length]).is_err(), "{length}");
        }
        let mut bytes = SMALLEST.to_vec();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                bytes[at] ^= flip;
                if let Ok(tensors) = tensors(&bytes) {
                    for (_, tensor) in tensors {
                        let length = tensor.len();
                        assert!(length <= 264);
                        assert_eq!(tensor.bytes(0..length).len(), length);
                    }
                }
                bytes[at] ^= flip;
            }
        }
    }
}
