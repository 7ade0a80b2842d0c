//! Copies between host memory and a device, while the device computes.
//!
//! A GPU copies on two streams beside the compute stream: the tokens of the next batch are uploaded and the vectors of the last
//! one downloaded meanwhile. Each stream waits, on the device, only for what it needs:
//!
//! ```text
//! in        tokens 1 ┐ tokens 2 ┐
//! compute            └ batch 1 ─┴──┐ batch 2 ─┐
//! out                              └ vectors 1└ vectors 2
//! ```

#[cfg(test)]
mod tests;

use std::time::Duration;

use plmkit_esm2::DeviceTimes;
use tch::kind::Element;
use tch::{Device, Kind, Tensor};

use crate::CudaError;
use crate::shim::{CudaEvent, Stream, pin};
use crate::timing::{KernelTimer, Span};

/// Copies to and from the device of a model.
#[derive(Debug)]
pub(crate) struct Transfer {
    device: Device,
    /// The streams of a device that works while the program continues.
    streams: Option<Streams>,
    /// Whether to measure the kinds of work.
    profile: bool,
}

#[derive(Debug)]
struct Streams {
    compute: Stream,
    inward: Stream,
    outward: Stream,
}

impl Transfer {
    pub(crate) fn new(device: Device, profile: bool) -> Result<Self, CudaError> {
        let streams = match device {
            Device::Cuda(index) => Some(Streams {
                compute: Stream::current(index)?,
                inward: Stream::another(index)?,
                outward: Stream::another(index)?,
            }),
            _ => None,
        };
        Ok(Self {
            device,
            streams,
            profile,
        })
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Returns a host tensor from which [`copy`](Self::copy) can copy.
    pub(crate) fn stage<T: Element>(&self, values: &[T]) -> Result<Tensor, CudaError> {
        let tensor = Tensor::f_from_slice(values)?;
        match self.streams {
            Some(_) => pin(&tensor),
            None => Ok(tensor),
        }
    }

    /// Allocates page-locked memory of these sizes in bytes, for two batches. libtorch keeps it for later.
    pub(crate) fn reserve(sizes: &[usize]) -> Result<(), CudaError> {
        let bytes = (Kind::Uint8, Device::Cpu);
        let sizes = sizes.iter().chain(sizes);
        let taken = sizes.map(|&size| pin(&Tensor::f_zeros([size as i64], bytes)?));
        taken.collect::<Result<Vec<_>, CudaError>>().map(drop)
    }

    /// Begins copies to the device.
    pub(crate) fn begin_upload(&self) -> Result<Option<CudaEvent>, CudaError> {
        let streams = self.streams.as_ref();
        streams.map(|streams| streams.inward.record()).transpose()
    }

    /// Copies a [staged](Self::stage) tensor.
    pub(crate) fn copy(&self, staged: &Tensor) -> Result<Tensor, CudaError> {
        match &self.streams {
            Some(streams) => streams.inward.copy_in(staged, &streams.compute),
            None => Ok(staged.f_to_device(self.device)?),
        }
    }

    /// Ends copies: work that is queued afterwards waits for them. Returns their time span, if the device measures it.
    pub(crate) fn end_upload(&self, begin: Option<CudaEvent>) -> Result<Option<Span>, CudaError> {
        let Some((streams, begin)) = self.streams.as_ref().zip(begin) else {
            return Ok(None);
        };
        let end = streams.inward.record()?;
        streams.compute.follow(&end)?;
        Ok(Some(Span { begin, end }))
    }

    /// Begins to copy tensors of the device to the host, one after the other in row-major order. Nothing may write to them
    /// any more.
    pub(crate) fn download(
        &self,
        tensors: impl IntoIterator<Item = Result<Tensor, CudaError>>,
    ) -> Result<Values, CudaError> {
        let flat = |tensor: Result<Tensor, CudaError>| -> Result<Tensor, CudaError> {
            Ok(tensor?.f_flatten(0, -1)?.f_to_kind(Kind::Float)?)
        };
        let tensors = tensors.into_iter().map(flat);
        let Some(streams) = &self.streams else {
            // A copy, since the next layer overwrites hidden states.
            let values = Tensor::f_cat(&tensors.collect::<Result<Vec<_>, _>>()?, 0)?;
            return Ok(Values(vec![(values, None)]));
        };
        let parts = tensors.map(|tensor| {
            streams.outward.follow(&streams.compute.record()?)?;
            let begin = streams.outward.record()?;
            let values = streams.outward.copy_out(&tensor?)?;
            let end = streams.outward.record()?;
            Ok((values, Some(Span { begin, end })))
        });
        Ok(Values(parts.collect::<Result<_, CudaError>>()?))
    }

    /// Records an event at the current end of the compute stream, if there is one.
    pub(crate) fn record(&self) -> Result<Option<CudaEvent>, CudaError> {
        let streams = self.streams.as_ref();
        streams.map(|streams| streams.compute.record()).transpose()
    }

    /// Returns a timer for the kinds of work, if they are to be measured and the device can.
    pub(crate) fn timer(&self) -> Option<KernelTimer> {
        let streams = self.streams.as_ref().filter(|_| self.profile)?;
        Some(KernelTimer::new(streams.compute))
    }
}

/// The values of a column in host memory, one part after the other: `(values)` f32, and the copy of a device, which may not be done.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<(Tensor, Option<Span>)>);

/// The values of a batch, which a device may still compute.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The values of each column.
    pub(crate) columns: Vec<Values>,
    /// On a device: the copy of the batch, and the computation.
    pub(crate) spans: Option<(Span, Span)>,
    /// The times of each kind of work, if measured.
    pub(crate) timer: Option<KernelTimer>,
}

impl Pending {
    /// Waits for the values of each column and copies them `into` a slice of their size. Returns the device's times, if one computed.
    pub(crate) fn collect(self, into: &mut [&mut [f32]]) -> Result<Option<DeviceTimes>, CudaError> {
        let times = self.spans.map(|(copied_in, computed)| {
            let compute = computed.took()?;
            let kernels = self.timer.map(|timer| timer.times(&computed.begin));
            Ok::<_, CudaError>(DeviceTimes {
                h2d: copied_in.took()?,
                compute,
                d2h: Duration::ZERO,
                kernels: kernels.transpose()?,
            })
        });
        let mut times = times.transpose()?;
        for (values, into) in self.columns.into_iter().zip(into) {
            let took = values.copy_into(into)?;
            if let Some(times) = &mut times {
                times.d2h += took;
            }
        }
        Ok(times)
    }
}

impl Values {
    /// Waits for the values and copies them `into` a slice of their size: page-locked memory is scarce. Returns the time of the
    /// device's copies.
    pub(crate) fn copy_into(self, into: &mut [f32]) -> Result<Duration, CudaError> {
        let (mut took, mut place) = (Duration::ZERO, 0);
        for (values, copied) in self.0 {
            if let Some(copied) = copied {
                took += copied.took()?;
            }
            let count = values.numel();
            values.f_copy_data(&mut into[place..], count)?;
            place += count;
        }
        assert_eq!(place, into.len(), "values of a column");
        Ok(took)
    }

    #[cfg(test)]
    pub(crate) fn read(self) -> Vec<f32> {
        let mut values = vec![0.0; self.0.iter().map(|(part, _)| part.numel()).sum()];
        self.copy_into(&mut values).unwrap();
        values
    }
}
