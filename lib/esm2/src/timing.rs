//! Times of a device's work, by its own clock.

use std::cell::RefCell;
use std::ops::{AddAssign, Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::EsmError;
use crate::shim::{Mark, Stream};

/// A section of the work of a stream.
#[derive(Debug)]
pub(crate) struct Span {
    begin: Mark,
    end: Mark,
}

impl Span {
    /// From one mark of a stream to a later one.
    pub(crate) fn new(begin: Mark, end: Mark) -> Self {
        Self { begin, end }
    }

    /// Returns the begin.
    pub(crate) fn begin(&self) -> &Mark {
        &self.begin
    }

    /// Waits for the end. Returns the time that the device took.
    pub(crate) fn took(&self) -> Result<Duration, EsmError> {
        self.end.wait()?;
        self.begin.until(&self.end)
    }
}

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
pub enum Work {
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

/// The times of a device by kind of [`Work`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelTimes([Duration; 8]);

impl Index<Work> for KernelTimes {
    type Output = Duration;

    fn index(&self, work: Work) -> &Duration {
        &self.0[work as usize]
    }
}

impl IndexMut<Work> for KernelTimes {
    fn index_mut(&mut self, work: Work) -> &mut Duration {
        &mut self.0[work as usize]
    }
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
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

/// Marks of a stream at which one kind of work ends and the next begins.
#[derive(Debug)]
pub(crate) struct LapTimer {
    stream: Stream,
    ends: RefCell<Vec<(Work, Mark)>>,
}

impl LapTimer {
    /// Measures work on `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            ends: RefCell::default(),
        }
    }

    /// Ends a lap: the work since the last one was `work`.
    pub(crate) fn end_lap(&self, work: Work) -> Result<(), EsmError> {
        let end = self.stream.mark()?;
        self.ends.borrow_mut().push((work, end));
        Ok(())
    }

    /// Returns the time of each kind of work since `begin`. The device has finished all of it.
    pub(crate) fn times(self, begin: &Mark) -> Result<KernelTimes, EsmError> {
        let mut times = KernelTimes::default();
        let ends = self.ends.into_inner();
        let mut last = begin;
        for (work, end) in &ends {
            times[*work] += last.until(end)?;
            last = end;
        }
        Ok(times)
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
        let kernels = KernelTimes(std::array::from_fn(|place| ms(place as u64 + 1)));
        for _ in 0..2 {
            sum += DeviceTimes {
                kernels: Some(kernels),
                ..plain
            };
        }
        assert_eq!((sum.h2d, sum.compute, sum.d2h), (ms(3), ms(60), ms(9)));
        let sum = sum.kernels.expect("two of three are known");
        assert_eq!((sum[Work::Gemm], sum[Work::Collect]), (ms(2), ms(16)));
        assert_eq!((sum[Work::Attention], sum[Work::Pooling]), (ms(4), ms(14)));
    }
}
