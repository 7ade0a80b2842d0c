//! How long a device took, by its own clock.

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::EsmError;
use crate::shim::Mark;

/// A stretch of the work of a stream.
#[derive(Debug)]
pub(crate) struct Span {
    begin: Mark,
    end: Mark,
}

impl Span {
    /// From one point of a stream to a later one of the same.
    pub(crate) fn new(begin: Mark, end: Mark) -> Self {
        Self { begin, end }
    }

    /// Where it begins.
    pub(crate) fn begin(&self) -> &Mark {
        &self.begin
    }

    /// Waits until the device is through with it. Returns how long that took the device.
    pub(crate) fn took(&self) -> Result<Duration, EsmError> {
        self.end.wait()?;
        self.begin.until(&self.end)
    }
}

/// How long a device took for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTimes {
    /// Copying to the device.
    pub h2d: Duration,
    /// Computing.
    pub compute: Duration,
    /// Copying to the host.
    pub d2h: Duration,
    /// What it computed, where that is taken down.
    pub kernels: Option<KernelTimes>,
}

/// How long a device computed, by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelTimes {
    /// Matrix products.
    pub gemm: Duration,
    /// Attention.
    pub attention: Duration,
    /// Token embedding.
    pub embedding: Duration,
    /// Sums of the residual stream and the `LayerNorm` after them.
    pub layer_norm: Duration,
    /// Rotation of queries and keys.
    pub rotary: Duration,
    /// GELU, with the bias before it where it is not added by the matrix product.
    pub gelu: Duration,
    /// Pooling, rows of residues, logits.
    pub pooling: Duration,
    /// Copies of hidden states that were asked for, and the final `LayerNorm`.
    pub collect: Duration,
}

impl AddAssign for DeviceTimes {
    fn add_assign(&mut self, other: Self) {
        self.h2d += other.h2d;
        self.compute += other.compute;
        self.d2h += other.d2h;
        if let Some(kernels) = other.kernels {
            *self.kernels.get_or_insert_default() += kernels;
        }
    }
}

impl AddAssign for KernelTimes {
    fn add_assign(&mut self, other: Self) {
        self.gemm += other.gemm;
        self.attention += other.attention;
        self.embedding += other.embedding;
        self.layer_norm += other.layer_norm;
        self.rotary += other.rotary;
        self.gelu += other.gelu;
        self.pooling += other.pooling;
        self.collect += other.collect;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_and_kernels_where_they_are_known() {
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
        let kernels = KernelTimes {
            gemm: ms(10),
            attention: ms(5),
            embedding: ms(1),
            layer_norm: ms(2),
            rotary: ms(3),
            gelu: ms(4),
            pooling: ms(6),
            collect: ms(7),
        };
        for _ in 0..2 {
            sum += DeviceTimes {
                kernels: Some(kernels),
                ..plain
            };
        }
        assert_eq!((sum.h2d, sum.compute, sum.d2h), (ms(3), ms(60), ms(9)));
        let sum = sum.kernels.expect("two of three are known");
        assert_eq!((sum.gemm, sum.attention), (ms(20), ms(10)));
        assert_eq!((sum.embedding, sum.layer_norm), (ms(2), ms(4)));
        assert_eq!((sum.rotary, sum.gelu), (ms(6), ms(8)));
        assert_eq!((sum.pooling, sum.collect), (ms(12), ms(14)));
    }
}
