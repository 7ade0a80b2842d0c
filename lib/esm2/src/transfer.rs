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

use tch::{Device, Kind, Tensor};

use crate::EsmError;
use crate::shim::{Mark, Stream, pin};
use crate::timing::{LapTimer, Span};
use crate::{Buffer, Buffers};

/// Copies to and from the device of a model.
#[derive(Debug)]
pub(crate) struct Transfer {
    device: Device,
    /// The streams of a device that works while the program continues.
    streams: Option<Streams>,
    /// Whether to measure the kinds of work.
    profile: bool,
    /// Host memory for values.
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

    /// Returns the device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Returns a host tensor from which an [`Upload`] can copy.
    pub(crate) fn stage(&self, tensor: &Tensor) -> Result<Tensor, EsmError> {
        match self.streams {
            Some(_) => pin(tensor),
            None => Ok(tensor.shallow_clone()),
        }
    }

    /// Allocates page-locked memory of these sizes in bytes, for two batches. libtorch keeps it for later. Returns whether the
    /// device uses such memory.
    pub(crate) fn reserve(&self, sizes: &[usize]) -> Result<bool, EsmError> {
        if self.streams.is_none() {
            return Ok(false);
        }
        let bytes = (Kind::Uint8, Device::Cpu);
        let sizes = sizes.iter().chain(sizes);
        let taken = sizes.map(|&size| pin(&Tensor::f_zeros([size as i64], bytes)?));
        taken.collect::<Result<Vec<_>, EsmError>>().map(|_| true)
    }

    /// Begins an upload.
    pub(crate) fn upload(&self) -> Result<Upload<'_>, EsmError> {
        let begin = |streams: &Streams| streams.inward.mark();
        Ok(Upload {
            transfer: self,
            begin: self.streams.as_ref().map(begin).transpose()?,
        })
    }

    /// Begins to copy tensors of the device to the host, one after the other in row-major order. Nothing may write to them
    /// any more.
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
            let values = gather(&self.buffers, all, tensors.into_iter().map(Ok))?;
            return Ok(Values::Here(values));
        };
        let parts = tensors.map(|tensor| {
            streams.outward.follow(&streams.compute.mark()?)?;
            let begin = streams.outward.mark()?;
            let values = streams.outward.copy_out(&tensor?)?;
            let copied = Span::new(begin, streams.outward.mark()?);
            Ok(DownloadPart { values, copied })
        });
        Ok(Values::Coming(Download {
            parts: parts.collect::<Result<_, EsmError>>()?,
            buffers: self.buffers.clone(),
        }))
    }

    /// Marks the current end of the compute stream, if there is one.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, EsmError> {
        let streams = self.streams.as_ref();
        streams.map(|streams| streams.compute.mark()).transpose()
    }

    /// Returns a timer for the kinds of work, if they are to be measured and the device can.
    pub(crate) fn laps(&self) -> Option<LapTimer> {
        let streams = self.streams.as_ref().filter(|_| self.profile)?;
        Some(LapTimer::new(streams.compute))
    }
}

/// An upload of tensors. Work that is queued after its [end](Self::end) waits for the copies.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    transfer: &'a Transfer,
    begin: Option<Mark>,
}

impl Upload<'_> {
    /// Copies a [staged](Transfer::stage) tensor.
    pub(crate) fn copy(&self, staged: &Tensor) -> Result<Tensor, EsmError> {
        match &self.transfer.streams {
            Some(streams) => streams.inward.copy_in(staged, &streams.compute),
            None => Ok(staged.f_to_device(self.transfer.device)?),
        }
    }

    /// Ends the upload. Returns its time span, if the device measures it.
    pub(crate) fn end(self) -> Result<Option<Span>, EsmError> {
        let Some((streams, begin)) = self.transfer.streams.as_ref().zip(self.begin) else {
            return Ok(None);
        };
        let end = streams.inward.mark()?;
        streams.compute.follow(&end)?;
        Ok(Some(Span::new(begin, end)))
    }
}

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// In host memory.
    Here(Buffer<f32>),
    /// Being copied to page-locked memory.
    Coming(Download),
}

/// A download of values in several parts.
#[derive(Debug)]
pub(crate) struct Download {
    parts: Vec<DownloadPart>,
    /// Memory to copy the values to: page-locked memory is scarce.
    buffers: Buffers<f32>,
}

#[derive(Debug)]
struct DownloadPart {
    /// `(values)` f32
    values: Tensor,
    copied: Span,
}

impl Download {
    /// Waits for the values. Returns them and the time of the copies.
    pub(crate) fn wait(self) -> Result<(Buffer<f32>, Duration), EsmError> {
        let mut took = Duration::ZERO;
        let all = self.parts.iter().map(|part| part.values.numel()).sum();
        let tensors = self.parts.into_iter().map(|part| {
            took += part.copied.took()?;
            Ok(part.values)
        });
        let values = gather(&self.buffers, all, tensors)?;
        Ok((values, took))
    }
}

/// Copies f32 tensors of the host, `all` values together, one after the other in row-major order.
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
