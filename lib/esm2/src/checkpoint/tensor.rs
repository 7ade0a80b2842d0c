//! A tensor as it is stored.

use std::borrow::Cow;
use std::ops::Range;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// The values of a tensor in a file.
#[derive(Debug)]
pub(super) struct StoredTensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    values: Values<'a>,
}

#[derive(Debug)]
enum Values<'a> {
    /// One after the other, the last dimension first.
    InOrder(&'a [u8]),
    /// In another order.
    Strided {
        /// From the first value on.
        bytes: &'a [u8],
        /// For each dimension, the bytes from one value to the next.
        strides: Vec<usize>,
        /// The bytes of a value.
        width: usize,
    },
}

impl<'a> StoredTensor<'a> {
    /// A tensor whose values, `width` bytes each, begin with those of `bytes` and lie `strides` values apart. That
    /// they all lie in `bytes` has been checked.
    pub(super) fn strided(
        dtype: Dtype,
        width: usize,
        shape: Vec<usize>,
        strides: &[usize],
        bytes: &'a [u8],
    ) -> Self {
        let mut next: usize = 1;
        let in_order = shape.iter().zip(strides).rev().all(|(&size, &stride)| {
            // The stride of a dimension of one is never used.
            let fits = size == 1 || stride == next;
            next = next.saturating_mul(size);
            fits
        });
        let count: usize = shape.iter().product();
        let values = if in_order || count == 0 {
            Values::InOrder(&bytes[..count * width])
        } else {
            Values::Strided {
                bytes,
                strides: strides
                    .iter()
                    .map(|stride| stride.saturating_mul(width))
                    .collect(),
                width,
            }
        };
        Self {
            dtype,
            shape,
            values,
        }
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes of all values.
    pub(super) fn len(&self) -> usize {
        match &self.values {
            Values::InOrder(bytes) => bytes.len(),
            Values::Strided { width, .. } => self.shape.iter().product::<usize>() * width,
        }
    }

    /// The bytes of the file among which the values lie.
    pub(super) fn extent(&self) -> &'a [u8] {
        match self.values {
            Values::InOrder(bytes) | Values::Strided { bytes, .. } => bytes,
        }
    }

    /// Some of the bytes of the values one after the other, the last dimension first.
    pub(super) fn bytes(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        match &self.values {
            Values::InOrder(bytes) => Cow::Borrowed(&bytes[range]),
            Values::Strided {
                bytes,
                strides,
                width,
            } => {
                let values = range.start / width..range.end.div_ceil(*width);
                let begin = range.start - values.start * width;
                let mut gathered = self.gathered(bytes, strides, *width, values);
                gathered.truncate(begin + range.len());
                gathered.drain(..begin);
                Cow::Owned(gathered)
            }
        }
    }

    fn gathered(
        &self,
        bytes: &[u8],
        strides: &[usize],
        width: usize,
        values: Range<usize>,
    ) -> Vec<u8> {
        let mut gathered = Vec::with_capacity(values.len() * width);
        let mut index = vec![0; self.shape.len()];
        let mut left = values.start;
        for (i, &size) in index.iter_mut().zip(&self.shape).rev() {
            *i = left % size;
            left /= size;
        }
        for _ in values {
            let at: usize = index
                .iter()
                .zip(strides)
                .map(|(i, stride)| i * stride)
                .sum();
            gathered.extend_from_slice(&bytes[at..at + width]);
            for (i, &size) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < size {
                    break;
                }
                *i = 0;
            }
        }
        gathered
    }
}

impl<'a> From<TensorView<'a>> for StoredTensor<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            values: Values::InOrder(view.data()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_any_order_come_out_in_order() {
        let bytes: Vec<u8> = (0..12).collect();
        let tensor = |shape: &[usize], strides: &[usize]| {
            StoredTensor::strided(Dtype::I16, 2, shape.to_vec(), strides, &bytes)
        };
        let all = |tensor: &StoredTensor<'_>| tensor.bytes(0..tensor.len()).into_owned();
        let (whole, turned) = (tensor(&[2, 3], &[3, 1]), tensor(&[3, 2], &[1, 3]));
        assert!(matches!(whole.bytes(0..12), Cow::Borrowed(_)));
        assert_eq!(all(&whole), bytes);
        let expected = [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11];
        assert_eq!(all(&turned), expected);
        for begin in 0..12 {
            for end in begin..=12 {
                assert_eq!(turned.bytes(begin..end)[..], expected[begin..end]);
            }
        }
        assert_eq!(all(&tensor(&[2], &[2])), [0, 1, 4, 5]);
        assert_eq!(all(&tensor(&[1, 2], &[7, 1])), [0, 1, 2, 3]);
        assert!(all(&tensor(&[0, 3], &[3, 1])).is_empty());
        assert_eq!(all(&tensor(&[], &[])), [0, 1]);
    }
}
