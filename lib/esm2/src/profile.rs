//! What the time of a batch goes into.

use std::cell::RefCell;

use crate::EsmError;
use crate::shim::{Mark, Stream};
use crate::timing::KernelTimes;

/// A kind of work of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Gemm,
    Attention,
    Embedding,
    /// Sums of the residual stream and the `LayerNorm` after them.
    LayerNorm,
    Rotary,
    Gelu,
    Pooling,
    /// What else is done for hidden states that were asked for: a copy, the final `LayerNorm`.
    Collect,
}

/// The points of a stream at which one kind of work ends and the next begins.
#[derive(Debug)]
pub(crate) struct Laps {
    stream: Stream,
    ends: RefCell<Vec<(Work, Mark)>>,
}

impl Laps {
    /// Of work on `stream`.
    pub(crate) fn on(stream: Stream) -> Self {
        Self {
            stream,
            ends: RefCell::default(),
        }
    }

    /// What was asked for since the last lap was `work`.
    pub(crate) fn end(&self, work: Work) -> Result<(), EsmError> {
        let end = self.stream.mark()?;
        self.ends.borrow_mut().push((work, end));
        Ok(())
    }

    /// How long each kind took from `begin` on, once the device is through with all of it.
    pub(crate) fn times(self, begin: &Mark) -> Result<KernelTimes, EsmError> {
        let mut times = KernelTimes::default();
        let ends = self.ends.into_inner();
        let mut last = begin;
        for (work, end) in &ends {
            let sum = match work {
                Work::Gemm => &mut times.gemm,
                Work::Attention => &mut times.attention,
                Work::Embedding => &mut times.embedding,
                Work::LayerNorm => &mut times.layer_norm,
                Work::Rotary => &mut times.rotary,
                Work::Gelu => &mut times.gelu,
                Work::Pooling => &mut times.pooling,
                Work::Collect => &mut times.collect,
            };
            *sum += last.until(end)?;
            last = end;
        }
        Ok(times)
    }
}
