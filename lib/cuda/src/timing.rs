//! Times of a device's work, by its own clock.

use std::cell::RefCell;
use std::time::Duration;

use plmkit_esm2::{KernelKind, KernelTimes};

use crate::CudaError;
use crate::shim::{CudaEvent, Stream};

/// A section of the work of a stream.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) begin: CudaEvent,
    /// A later event of the stream.
    pub(crate) end: CudaEvent,
}

impl Span {
    /// Waits for the end. Returns the time that the device took.
    pub(crate) fn took(&self) -> Result<Duration, CudaError> {
        self.end.wait()?;
        self.begin.until(&self.end)
    }
}

/// Events of a stream at which one kind of work ends and the next begins.
#[derive(Debug)]
pub(crate) struct KernelTimer {
    stream: Stream,
    ends: RefCell<Vec<(KernelKind, CudaEvent)>>,
}

impl KernelTimer {
    /// Measures work on `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            ends: RefCell::default(),
        }
    }

    /// The work since the last call was `work`.
    pub(crate) fn record(&self, work: KernelKind) -> Result<(), CudaError> {
        let end = self.stream.record()?;
        self.ends.borrow_mut().push((work, end));
        Ok(())
    }

    /// Returns the time of each kind of work since `begin`. The device has finished all of it.
    pub(crate) fn times(self, begin: &CudaEvent) -> Result<KernelTimes, CudaError> {
        let mut times = KernelTimes::default();
        let ends = self.ends.into_inner();
        let mut last = begin;
        for (work, end) in &ends {
            times[*work as usize] += last.until(end)?;
            last = end;
        }
        Ok(times)
    }
}
