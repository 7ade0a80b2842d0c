//! The tensors of a weight file, by its format: safetensors or PyTorch's.

use std::collections::BTreeSet;
use std::sync::Arc;

use plmkit_kit::Stop;
use rayon::prelude::*;
use safetensors::tensor::Metadata;
use safetensors::{SafeTensorError, SafeTensors};

use super::foreign::list_names;
use super::stored_tensor::{StoredTensor, strides_of};
use super::torch_file;
use super::weight_file::WeightFile;
use crate::error::EsmError;

/// Returns the tensors of the file with the names that they have in it. Offsets and shapes are checked against the
/// file size, names against the index.
pub(super) fn tensors(file: &Arc<WeightFile>) -> Result<Vec<(String, StoredTensor)>, EsmError> {
    let tensors = if is_safetensors(file) {
        safetensors(file)
    } else {
        torch_file::tensors(file)
    };
    let invalid = |reason| EsmError::invalid(&file.path, reason);
    let tensors = tensors.map_err(invalid)?;
    let found: BTreeSet<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let mut missing = file.indexed.clone();
    missing.retain(|name| !found.contains(name.as_str()));
    if missing.is_empty() {
        return Ok(tensors);
    }
    let missing = list_names(&missing);
    Err(invalid(format!(
        "not the file of this model's index: missing {missing}"
    )))
}

fn safetensors(file: &Arc<WeightFile>) -> Result<Vec<(String, StoredTensor)>, String> {
    let (length, header) = SafeTensors::read_metadata(file.bytes())
        .map_err(|error| safetensors_damage(file.bytes(), &error))?;
    let tensor = |name: String| {
        let info = header.info(&name)?;
        let tensor = StoredTensor {
            file: Arc::clone(file),
            dtype: info.dtype,
            shape: info.shape.clone(),
            strides: strides_of(&info.shape),
            start: size_of::<u64>() + length + info.data_offsets.0,
        };
        Some((name, tensor))
    };
    Ok(header
        .offset_keys()
        .into_iter()
        .filter_map(tensor)
        .collect())
}

/// Compares the records of a PyTorch file with the CRC-32 in its archive, on the threads of the current pool.
pub(super) fn check_sums(file: &WeightFile, stop: &Stop) -> Result<(), EsmError> {
    if is_safetensors(file) {
        return Ok(());
    }
    let invalid = |reason| EsmError::invalid(&file.path, reason);
    let records = torch_file::records(file.bytes()).map_err(invalid)?;
    let records: Vec<_> = records.iter().collect();
    let damage = records.par_iter().find_map_first(|(name, record)| {
        if stop.requested() {
            return None;
        }
        let damage = torch_file::check_sum(file.bytes(), name, record).err();
        file.release(record.0.start, record.0.len());
        damage
    });
    damage.map_or(Ok(()), |reason| Err(invalid(reason)))
}

fn is_safetensors(file: &WeightFile) -> bool {
    file.path
        .extension()
        .is_some_and(|found| found == "safetensors")
}

/// Describes a safetensors file that is not as long as its header says. Other damage has the words of its reader.
fn safetensors_damage(bytes: &[u8], error: &SafeTensorError) -> String {
    const LENGTH: usize = size_of::<u64>();
    let length = bytes
        .first_chunk()
        .map(|length| u64::from_le_bytes(*length));
    let end = LENGTH.saturating_add(length.unwrap_or_default() as usize);
    let expected = match error {
        SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => {
            format!("expected more than {end} bytes, found {}", bytes.len())
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            let header = serde_json::from_slice::<Metadata>(&bytes[LENGTH..end]);
            let data = header.map_or(0, |header| header.data_len());
            format!("expected {} bytes, found {}", end + data, bytes.len())
        }
        other => other.to_string(),
    };
    format!("damaged or not a safetensors file: {expected}")
}
