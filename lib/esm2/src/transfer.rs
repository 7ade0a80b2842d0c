//! Between host memory and a device, while the device computes.
//!
//! A GPU copies on two streams beside the one that computes, so that the tokens of the next batch go in and the vectors of the last
//! one out meanwhile. Each waits, on the device, only for what it needs:
//!
//! ```text
//! in        tokens 1 ┐ tokens 2 ┐
//! compute            └ batch 1 ─┴──┐ batch 2 ─┐
//! out                              └ vectors 1└ vectors 2
//! ```

#[cfg(test)]
mod tests;

use std::time::Duration;

use tch::{Device, Kind, Tensor};

use crate::EsmError;
use crate::shim::{Mark, Stream, pin};
use crate::timing::{LapTimer, Span};
use crate::{Buffer, Buffers};

/// The ways to and from the device that a model is on.
#[derive(Debug)]
pub(crate) struct Transfer {
    device: Device,
    /// Where the device works while the program goes on.
    streams: Option<Streams>,
    /// Whether it is to be known what a batch's time goes into.
    profile: bool,
    /// Where values lie on the host.
    buffers: Buffers<f32>,
}

#[derive(Debug)]
struct Streams {
    compute: Stream,
    inward: Stream,
    outward: Stream,
}

impl Transfer {
    pub(crate) fn new(device: Device, profile: bool) -> Result<Self, EsmError> {
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
            buffers: Buffers::default(),
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// A tensor of the host from which an [`Upload`] copies.
    pub(crate) fn stage(&self, tensor: &Tensor) -> Result<Tensor, EsmError> {
        match self.streams {
            Some(_) => pin(tensor),
            None => Ok(tensor.shallow_clone()),
        }
    }

    /// Takes page-locked memory of these sizes in bytes, as much as two batches need, from which that of batches will come: libtorch keeps
    /// what was let go of. Returns whether the device has use for it.
    pub(crate) fn reserve(&self, sizes: &[usize]) -> Result<bool, EsmError> {
        if self.streams.is_none() {
            return Ok(false);
        }
        let bytes = (Kind::Uint8, Device::Cpu);
        let sizes = sizes.iter().chain(sizes);
        let taken = sizes.map(|&size| pin(&Tensor::f_zeros([size as i64], bytes)?));
        taken.collect::<Result<Vec<_>, EsmError>>().map(|_| true)
    }

    /// Begins to copy to the device.
    pub(crate) fn upload(&self) -> Result<Upload<'_>, EsmError> {
        let begin = |streams: &Streams| streams.inward.mark();
        Ok(Upload {
            transfer: self,
            begin: self.streams.as_ref().map(begin).transpose()?,
        })
    }

    /// Has the values of tensors on the device, to which nobody may write any more, copied to the host, one after the other and row by row.
    pub(crate) fn download(
        &self,
        tensors: impl IntoIterator<Item = Result<Tensor, EsmError>>,
    ) -> Result<Values, EsmError> {
        let flat = |tensor: Result<Tensor, EsmError>| -> Result<Tensor, EsmError> {
            Ok(tensor?.f_flatten(0, -1)?.f_to_kind(Kind::Float)?)
        };
        let tensors = tensors.into_iter().map(flat);
        let Some(streams) = &self.streams else {
            let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
            let all = tensors.iter().map(Tensor::numel).sum();
            return Ok(Values::Here(self.gather(all, tensors.into_iter().map(Ok))?));
        };
        let arrivals = tensors.map(|tensor| {
            streams.outward.follow(&streams.compute.mark()?)?;
            let begin = streams.outward.mark()?;
            let values = streams.outward.copy_out(&tensor?)?;
            let copied = Span::new(begin, streams.outward.mark()?);
            Ok(Arrival { values, copied })
        });
        Ok(Values::Coming(Arrivals {
            all: arrivals.collect::<Result<_, EsmError>>()?,
            buffers: self.buffers.clone(),
        }))
    }

    /// The values of f32 tensors on the host, `all` together, one after the other and row by row.
    pub(crate) fn gather(
        &self,
        all: usize,
        tensors: impl IntoIterator<Item = Result<Tensor, EsmError>>,
    ) -> Result<Buffer<f32>, EsmError> {
        gather(&self.buffers, all, tensors)
    }

    /// The next point in what is computed, where that happens while the program goes on.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, EsmError> {
        let streams = self.streams.as_ref();
        streams.map(|streams| streams.compute.mark()).transpose()
    }

    /// What takes down what a batch's time goes into, if it is to be known and the device has a clock.
    pub(crate) fn laps(&self) -> Option<LapTimer> {
        let streams = self.streams.as_ref().filter(|_| self.profile)?;
        Some(LapTimer::new(streams.compute))
    }
}

/// Tensors on their way to the device. What is computed next comes after those that were copied when it [ends](Self::end).
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    transfer: &'a Transfer,
    begin: Option<Mark>,
}

impl Upload<'_> {
    /// Has a [staged](Transfer::stage) tensor copied.
    pub(crate) fn copy(&self, staged: &Tensor) -> Result<Tensor, EsmError> {
        match &self.transfer.streams {
            Some(streams) => streams.inward.copy_in(staged, &streams.compute),
            None => Ok(staged.f_to_device(self.transfer.device)?),
        }
    }

    /// No more is copied. Returns when it was, by the device's clock if it has one.
    pub(crate) fn end(self) -> Result<Option<Span>, EsmError> {
        let Some((streams, begin)) = self.transfer.streams.as_ref().zip(self.begin) else {
            return Ok(None);
        };
        let end = streams.inward.mark()?;
        streams.compute.follow(&end)?;
        Ok(Some(Span::new(begin, end)))
    }
}

/// Values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// In host memory.
    Here(Buffer<f32>),
    /// In page-locked memory to which the device copies.
    Coming(Arrivals),
}

/// Values on their way to the host, one after the other.
#[derive(Debug)]
pub(crate) struct Arrivals {
    all: Vec<Arrival>,
    /// Where they go from there, since such memory is dear.
    buffers: Buffers<f32>,
}

#[derive(Debug)]
struct Arrival {
    /// `(values)` f32
    values: Tensor,
    copied: Span,
}

impl Arrivals {
    /// Waits until they are there. Returns how long the device copied, too.
    pub(crate) fn wait(self) -> Result<(Buffer<f32>, Duration), EsmError> {
        let mut took = Duration::ZERO;
        let all = self.all.iter().map(|arrival| arrival.values.numel()).sum();
        let tensors = self.all.into_iter().map(|arrival| {
            took += arrival.copied.took()?;
            Ok(arrival.values)
        });
        let values = gather(&self.buffers, all, tensors)?;
        Ok((values, took))
    }
}

fn gather(
    buffers: &Buffers<f32>,
    all: usize,
    tensors: impl IntoIterator<Item = Result<Tensor, EsmError>>,
) -> Result<Buffer<f32>, EsmError> {
    let mut values = buffers.take(all);
    let mut place = 0;
    for tensor in tensors {
        let tensor = tensor?;
        let count = tensor.numel();
        tensor.f_copy_data(&mut values[place..], count)?;
        place += count;
    }
    Ok(values)
}
