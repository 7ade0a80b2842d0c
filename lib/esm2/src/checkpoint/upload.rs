//! Bytes to a device without another copy on this side.

use tch::{Device, Kind, Tensor};

use crate::EsmError;

/// Copies bytes to a device: `(bytes)` u8.
#[allow(unsafe_code)]
pub(super) fn upload(bytes: &[u8], device: Device) -> Result<Tensor, EsmError> {
    let (size, options) = ([bytes.len() as i64], (Kind::Uint8, device));
    let mut copy = Tensor::f_empty(size, options)?;
    // SAFETY: the tensor is read as bytes, as many as there are, and is gone before they are: copying from memory that is not page-locked
    // ends when it was read.
    let there =
        unsafe { Tensor::f_from_blob(bytes.as_ptr(), &size, &[1], Kind::Uint8, Device::Cpu)? };
    copy.f_copy_(&there)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_begin_anywhere_become_values() {
        let bytes: Vec<u8> = [0]
            .into_iter()
            .chain([1.5f32, -2.0].into_iter().flat_map(f32::to_le_bytes))
            .collect();
        let copy = upload(&bytes[1..], Device::Cpu).unwrap();
        let values = copy.view_dtype(Kind::Float);
        assert_eq!(Vec::<f32>::try_from(values).unwrap(), [1.5, -2.0]);
        assert!(upload(&[], Device::Cpu).unwrap().size() == [0]);
    }
}
