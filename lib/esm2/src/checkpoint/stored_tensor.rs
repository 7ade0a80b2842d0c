//! A tensor of a weight file.

use std::borrow::Cow;
use std::sync::Arc;

use plmkit_contract::Dtype;
use plmkit_cpu::widen;

use super::weight_file::WeightFile;
use crate::error::EsmError;

/// A tensor of a weight file. All its values lie in the file.
#[derive(Clone)]
pub struct StoredTensor {
    pub(super) file: Arc<WeightFile>,
    pub(super) dtype: safetensors::Dtype,
    pub(super) shape: Vec<usize>,
    /// For each dimension, the distance between neighbours, in values.
    pub(super) strides: Vec<usize>,
    /// Where the first value begins in the file.
    pub(super) start: usize,
}

impl StoredTensor {
    /// Releases the memory of the file, so that memory holds the model only once.
    pub fn release(&self) {
        let values = end(&self.shape, &self.strides).unwrap_or(0);
        self.file.release(self.start, values * self.width());
    }

    /// Returns the type of the stored values.
    #[allow(clippy::missing_panics_doc, reason = "types were checked")]
    pub fn stored_type(&self) -> Dtype {
        stored_type(self.dtype).expect("types were checked")
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the values in row-major order and little-endian: the bytes of the file, or a copy where the file has another order.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        let count: usize = self.shape.iter().product();
        let stored = &self.file.bytes()[self.start..];
        if count == 0 || self.is_row_major() {
            Cow::Borrowed(&stored[..count * self.width()])
        } else {
            Cow::Owned(row_major(&self.shape, &self.strides, self.width(), stored))
        }
    }

    /// Returns all values in f32.
    pub(super) fn values(&self) -> Vec<f32> {
        let bytes = self.bytes();
        let mut values = vec![0.0; bytes.len() / self.width()];
        widen(self.stored_type(), &bytes, &mut values);
        self.release();
        values
    }

    /// Divides the rows among `count` matrices of one shape, one below the other. Returns the whole if that is not possible.
    pub(super) fn divided(self, count: usize) -> Vec<Self> {
        let rows = self.shape.first().copied().unwrap_or(1);
        if count == 1 || !rows.is_multiple_of(count) {
            return vec![self];
        }
        // Strides of no values can be any numbers.
        let is_empty = self.shape.contains(&0);
        let stride = if is_empty { 0 } else { self.strides[0] };
        let part = |number: usize| {
            let mut part = self.clone();
            part.shape[0] = rows / count;
            part.start += number * part.shape[0] * stride * self.width();
            part
        };
        (0..count).map(part).collect()
    }

    /// Checks that the values in `piece`, which begins at the byte `begin`, are finite. `name` is for the error.
    pub(super) fn check_finite(
        &self,
        name: &str,
        begin: usize,
        piece: &[u8],
    ) -> Result<(), EsmError> {
        let Some((place, found)) = first_not_finite(self.stored_type(), piece) else {
            return Ok(());
        };
        let index = begin / self.width() + place;
        let what = format!("expected finite values, found {found} at index {index}");
        Err(self.invalid(name, &what))
    }

    /// The error of a tensor of this name.
    pub(super) fn invalid(&self, name: &str, what: &str) -> EsmError {
        EsmError::invalid(&self.file.path, format!("tensor '{name}': {what}"))
    }

    fn width(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    fn is_row_major(&self) -> bool {
        let expected = strides_of(&self.shape);
        let mut dimensions = self.shape.iter().zip(&self.strides).zip(expected);
        // The stride of a dimension of size 1 has no effect.
        dimensions.all(|((&size, &stride), expected)| size == 1 || stride == expected)
    }
}

/// Returns the type of values, if a model can be computed from them.
pub(super) fn stored_type(dtype: safetensors::Dtype) -> Option<Dtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(Dtype::F32),
        safetensors::Dtype::F16 => Some(Dtype::F16),
        safetensors::Dtype::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// Returns the strides of values in row-major order.
pub(super) fn strides_of(shape: &[usize]) -> Vec<usize> {
    let inner = |dimension: usize| shape[dimension + 1..].iter();
    let stride =
        |dimension| inner(dimension).fold(1, |product: usize, &size| product.saturating_mul(size));
    (0..shape.len()).map(stride).collect()
}

/// Returns the index after the last value, counted from the first; `None` if there is no such number.
pub(super) fn end(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let mut dimensions = shape.iter().zip(strides);
    dimensions.try_fold(1, |end: usize, (&size, &stride)| {
        end.checked_add((size - 1).checked_mul(stride)?)
    })
}

/// Copies values of `width` bytes in row-major order.
fn row_major(shape: &[usize], strides: &[usize], width: usize, bytes: &[u8]) -> Vec<u8> {
    let own = strides_of(shape);
    // The place of a value, given its number in row-major order.
    let place = |number: usize| -> usize {
        let dimensions = shape.iter().zip(&own).zip(strides);
        let offsets = dimensions.map(|((size, own), stride)| number / own % size * stride);
        offsets.sum()
    };
    let values = (0..shape.iter().product()).map(|number| &bytes[place(number) * width..][..width]);
    values.flatten().copied().collect()
}

/// Returns the index of the first value that is not finite, and the value.
fn first_not_finite(stored: Dtype, bytes: &[u8]) -> Option<(usize, f32)> {
    const BLOCK: usize = 1 << 10;
    let (mut values, width) = ([0.0; BLOCK], stored.bytes());
    for (block, bytes) in bytes.chunks(BLOCK * width).enumerate() {
        let values = &mut values[..bytes.len() / width];
        widen(stored, bytes, values);
        // No branch for each value, so that the loop is vectorised.
        if !values
            .iter()
            .fold(true, |all, value| all & value.is_finite())
        {
            let place = values.iter().position(|value| !value.is_finite())?;
            return Some((block * BLOCK + place, values[place]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn strided_values_are_copied_in_row_major_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..12).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Arc::new(WeightFile::open(path, Vec::new()).unwrap());
        for (shape, strides, expected) in [
            (&[2, 3][..], &[3, 1][..], &bytes[..]),
            (&[3, 2], &[1, 3], &[0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]),
            (&[2], &[2], &[0, 1, 4, 5]),
            (&[1, 2], &[7, 1], &[0, 1, 2, 3]),
            (&[0, 3], &[3, 1], &[]),
            (&[], &[], &[0, 1]),
        ] {
            let tensor = StoredTensor {
                file: Arc::clone(&file),
                dtype: safetensors::Dtype::I16,
                shape: shape.to_vec(),
                strides: strides.to_vec(),
                start: 0,
            };
            assert_eq!(&tensor.bytes()[..], expected);
            let is_borrowed = matches!(tensor.bytes(), Cow::Borrowed(_));
            assert_eq!(is_borrowed, ![&[3, 2][..], &[2]].contains(&shape));
        }
    }

    #[test]
    fn values_that_are_not_finite_are_found_in_every_type() {
        let f32s = |value: f32| value.to_le_bytes().to_vec();
        let f16s = |value: f32| f16::from_f32(value).to_le_bytes().to_vec();
        let bf16s = |value: f32| bf16::from_f32(value).to_le_bytes().to_vec();
        let cases: [(_, &dyn Fn(f32) -> Vec<u8>, _); 3] = [
            (Dtype::F32, &f32s, f32::MAX),
            (Dtype::F16, &f16s, f16::MAX.to_f32()),
            (Dtype::Bf16, &bf16s, bf16::MAX.to_f32()),
        ];
        for (stored, bytes_of, max) in cases {
            for value in [
                f32::NAN,
                -f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                max,
                -max,
                0.0,
                -0.0,
            ] {
                let bytes = [vec![bytes_of(1.5); 33], vec![bytes_of(value); 2]]
                    .concat()
                    .concat();
                let expected = (!value.is_finite()).then_some(33);
                let found = first_not_finite(stored, &bytes).map(|(place, _)| place);
                assert_eq!(found, expected, "{stored:?} {value}");
            }
        }
    }
}
