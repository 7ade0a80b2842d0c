//! Times of a device's work, by its own clock.

use std::cell::RefCell;
use std::time::Duration;

use plmkit_esm2::{KernelTimes, Work};

use crate::CudaError;
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
    pub(crate) fn took(&self) -> Result<Duration, CudaError> {
        self.end.wait()?;
        self.begin.until(&self.end)
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
    pub(crate) fn end_lap(&self, work: Work) -> Result<(), CudaError> {
        let end = self.stream.mark()?;
        self.ends.borrow_mut().push((work, end));
        Ok(())
    }

    /// Returns the time of each kind of work since `begin`. The device has finished all of it.
    pub(crate) fn times(self, begin: &Mark) -> Result<KernelTimes, CudaError> {
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
