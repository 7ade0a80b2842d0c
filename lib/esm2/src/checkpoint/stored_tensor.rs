//! A tensor of a checkpoint and its file.

use std::path::Path;

use plmkit_cpu::widen;

use super::tensor::TensorData;
use super::weight_file::WeightFile;
use crate::Dtype;

/// A tensor of a checkpoint and its file.
pub struct StoredTensor<'a> {
    pub(super) data: TensorData<'a>,
    pub(super) file: &'a WeightFile,
}

impl StoredTensor<'_> {
    /// Releases the memory of the file, so that memory holds the model only once.
    pub fn release(&self) {
        self.file.release(self.data.extent);
    }

    /// Returns the type of the stored values.
    #[allow(clippy::missing_panics_doc, reason = "types were checked")]
    pub fn stored_type(&self) -> Dtype {
        stored_type(self.data.dtype).expect("types were checked")
    }

    /// Returns the stored values, in row-major order and little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.data.bytes
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.data.shape
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the bytes of a matrix row.
    pub(super) fn row(&self, row: usize) -> &[u8] {
        let width = self.data.shape[1] * self.stored_type().bytes();
        &self.data.bytes[row * width..][..width]
    }

    /// Returns all values in f32.
    pub(super) fn values(&self) -> Vec<f32> {
        let bytes = &self.data.bytes;
        let mut values = vec![0.0; bytes.len() / self.stored_type().bytes()];
        widen(self.stored_type(), bytes, &mut values);
        self.release();
        values
    }
}

pub(super) fn stored_type(dtype: safetensors::Dtype) -> Option<Dtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(Dtype::F32),
        safetensors::Dtype::F16 => Some(Dtype::F16),
        safetensors::Dtype::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}
