//! Times of a device's work, by its own clock.

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The times of a device for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTimes {
    /// Copying to the device.
    pub h2d: Duration,
    /// Computing.
    pub compute: Duration,
    /// Copying to the host.
    pub d2h: Duration,
    /// Computing, by kind of work, if measured.
    pub kernels: Option<KernelTimes>,
}

/// A kind of work of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelKind {
    /// Matrix products.
    Gemm,
    /// Attention.
    Attention,
    /// Token embedding.
    Embedding,
    /// Sums of the residual stream, and the `LayerNorm` after them.
    LayerNorm,
    /// Rotation of queries and keys.
    Rotary,
    /// GELU, with the bias before it unless the matrix product adds it.
    Gelu,
    /// Pooling, rows of residues, logits.
    Pooling,
    /// Copies of hidden states for outputs, and the final `LayerNorm`.
    Collect,
}

/// The times of a device, each at the place of its [`KernelKind`].
pub type KernelTimes = [Duration; 8];

impl AddAssign for DeviceTimes {
    fn add_assign(&mut self, other: Self) {
        self.h2d += other.h2d;
        self.compute += other.compute;
        self.d2h += other.d2h;
        if let Some(kernels) = other.kernels {
            let sums = self.kernels.get_or_insert_default();
            sums.iter_mut()
                .zip(kernels)
                .for_each(|(sum, more)| *sum += more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_and_kernels_if_they_were_measured() {
        let ms = Duration::from_millis;
        let mut sum = DeviceTimes::default();
        let plain = DeviceTimes {
            h2d: ms(1),
            compute: ms(20),
            d2h: ms(3),
            kernels: None,
        };
        sum += plain;
        assert_eq!(sum, plain);
        let kernels = std::array::from_fn(|place| ms(place as u64 + 1));
        for _ in 0..2 {
            sum += DeviceTimes {
                kernels: Some(kernels),
                ..plain
            };
        }
        assert_eq!((sum.h2d, sum.compute, sum.d2h), (ms(3), ms(60), ms(9)));
        let sum = sum.kernels.expect("two of three are known");
        assert_eq!(
            (
                sum[KernelKind::Gemm as usize],
                sum[KernelKind::Collect as usize]
            ),
            (ms(2), ms(16))
        );
        assert_eq!(
            (
                sum[KernelKind::Attention as usize],
                sum[KernelKind::Pooling as usize]
            ),
            (ms(4), ms(14))
        );
    }
}
