//! The values of a stored tensor.

use std::borrow::Cow;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// The values of a tensor in row-major order.
#[derive(Debug)]
pub(super) struct TensorData<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// The bytes of all values: those of the file, or a copy where the file has another order.
    pub(super) bytes: Cow<'a, [u8]>,
    /// The bytes of the file that contain the values.
    pub(super) extent: &'a [u8],
}

impl<'a> TensorData<'a> {
    /// A tensor whose first value begins `bytes`, with `strides` in values. The caller has checked that all values lie in
    /// `bytes`.
    pub(super) fn strided(
        dtype: Dtype,
        shape: Vec<usize>,
        strides: &[usize],
        bytes: &'a [u8],
    ) -> Self {
        let width = dtype.bitsize() / 8;
        let mut next: usize = 1;
        let is_row_major = shape.iter().zip(strides).rev().all(|(&size, &stride)| {
            // The stride of a dimension of size 1 has no effect.
            let fits = size == 1 || stride == next;
            next = next.saturating_mul(size);
            fits
        });
        let count: usize = shape.iter().product();
        let (bytes, extent) = if is_row_major || count == 0 {
            let bytes = &bytes[..count * width];
            (Cow::Borrowed(bytes), bytes)
        } else {
            (Cow::Owned(row_major(&shape, strides, width, bytes)), bytes)
        };
        Self {
            dtype,
            shape,
            bytes,
            extent,
        }
    }
}

impl TensorData<'_> {
    /// Divides the rows among `count` matrices of one shape, one below the other. Returns the whole if that is not possible.
    pub(super) fn divided(self, count: usize) -> Vec<Self> {
        let rows = self.shape.first().copied().unwrap_or(1);
        if count == 1 || !rows.is_multiple_of(count) {
            return vec![self];
        }
        let length = self.bytes.len() / count;
        let part = |number: usize| {
            let own = number * length..(number + 1) * length;
            let (bytes, extent) = match &self.bytes {
                Cow::Borrowed(bytes) => (Cow::Borrowed(&bytes[own.clone()]), &bytes[own]),
                Cow::Owned(bytes) => (Cow::Owned(bytes[own].to_vec()), self.extent),
            };
            let mut shape = self.shape.clone();
            shape[0] = rows / count;
            Self {
                dtype: self.dtype,
                shape,
                bytes,
                extent,
            }
        };
        (0..count).map(part).collect()
    }
}

/// Copies values of `width` bytes in row-major order.
fn row_major(shape: &[usize], strides: &[usize], width: usize, bytes: &[u8]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let mut copy = Vec::with_capacity(count * width);
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        let places = index.iter().zip(strides);
        let at = width * places.map(|(i, stride)| i * stride).sum::<usize>();
        copy.extend_from_slice(&bytes[at..at + width]);
        for (i, &size) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
    }
    copy
}

impl<'a> From<TensorView<'a>> for TensorData<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().into(),
            extent: view.data(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_values_are_copied_in_row_major_order() {
        let bytes: Vec<u8> = (0..12).collect();
        for (shape, strides, expected) in [
            (&[2, 3][..], &[3, 1][..], &bytes[..]),
            (&[3, 2], &[1, 3], &[0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]),
            (&[2], &[2], &[0, 1, 4, 5]),
            (&[1, 2], &[7, 1], &[0, 1, 2, 3]),
            (&[0, 3], &[3, 1], &[]),
            (&[], &[], &[0, 1]),
        ] {
            let tensor = TensorData::strided(Dtype::I16, shape.to_vec(), strides, &bytes);
            assert_eq!(&tensor.bytes[..], expected);
            let is_borrowed = matches!(tensor.bytes, Cow::Borrowed(_));
            assert_eq!(is_borrowed, ![&[3, 2][..], &[2]].contains(&shape));
        }
    }
}
