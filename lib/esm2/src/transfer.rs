//! Between host memory and a device, while the device computes.

use std::time::Duration;

use tch::{Device, Kind, Tensor};

use crate::EsmError;
use crate::shim::Mark;

/// Copies a tensor to `device`. To a GPU it goes while the program goes on: what is asked of the device next comes after it.
pub(crate) fn upload(tensor: &Tensor, device: Device) -> Result<Tensor, EsmError> {
    match device {
        Device::Cuda(_) => {
            // libtorch keeps page-locked memory until the copy is through.
            let staged = tensor.f_pin_memory(device)?;
            Ok(staged.f_internal_to_copy((tensor.f_kind()?, device), true)?)
        }
        _ => Ok(tensor.f_to_device(device)?),
    }
}

/// Values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// In host memory.
    Here(Vec<f32>),
    /// A tensor in page-locked host memory to which the device copies.
    Coming(Tensor),
}

impl Values {
    /// Those of a tensor, row by row, in f32.
    pub(crate) fn of(tensor: &Tensor) -> Result<Self, EsmError> {
        let flat = tensor.f_flatten(0, -1)?;
        Ok(match tensor.device() {
            // Into page-locked memory, and without waiting.
            Device::Cuda(_) => {
                Self::Coming(flat.f_internal_to_copy((Kind::Float, Device::Cpu), true)?)
            }
            _ => Self::Here(Vec::try_from(flat.f_to_kind(Kind::Float)?)?),
        })
    }

    /// Once the device has copied them.
    fn arrived(self) -> Result<Vec<f32>, EsmError> {
        Ok(match self {
            Self::Here(values) => values,
            Self::Coming(tensor) => Vec::try_from(tensor)?,
        })
    }
}

/// What was asked of a model and may still be computed.
#[derive(Debug)]
pub struct Pending {
    values: Vec<Values>,
    /// Where the device began with it and where it ends; `None` where it is computed already.
    span: Option<(Mark, Mark)>,
}

/// What was computed of a batch.
#[derive(Debug)]
pub struct Computed {
    /// For each column the values of all sequences, one after the other.
    pub columns: Vec<Vec<f32>>,
    /// What the device took for it, by its own clock; `None` where it was computed while it was asked for.
    pub took: Option<Duration>,
}

impl Pending {
    pub(crate) fn new(values: Vec<Values>, span: Option<(Mark, Mark)>) -> Self {
        Self { values, span }
    }

    /// Whether it is computed, so that there is nothing to wait for.
    pub fn is_computed(&self) -> bool {
        self.span.is_none()
    }

    /// Waits for it.
    pub fn finish(self) -> Result<Computed, EsmError> {
        let took = match &self.span {
            Some((begin, end)) => {
                end.wait()?;
                Some(begin.until(end)?)
            }
            None => None,
        };
        let columns = self.values.into_iter().map(Values::arrived);
        Ok(Computed {
            columns: columns.collect::<Result<_, _>>()?,
            took,
        })
    }
}

/// The next point in the work of `device`, if it works while the program goes on.
pub(crate) fn mark(device: Device) -> Result<Option<Mark>, EsmError> {
    match device {
        Device::Cuda(index) => Mark::set(index).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_cpu_values_are_there_at_once_row_by_row() {
        let tensor = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]).tr();
        let pending = Pending::new(vec![Values::of(&tensor).unwrap()], None);
        assert!(pending.is_computed());
        let computed = pending.finish().unwrap();
        assert_eq!(computed.columns, [[1.0, 3.0, 2.0, 4.0]]);
        assert_eq!(computed.took, None);
        let same = upload(&tensor, Device::Cpu).unwrap();
        assert_eq!(same, tensor);
    }
}
