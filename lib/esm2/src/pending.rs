//! What was asked of a model.

use crate::timing::{DeviceTimes, LapTimer, Span};
use crate::transfer::Values;
use crate::{Buffer, EsmError};

/// What was asked of a model and may still be computed.
#[derive(Debug)]
pub struct PendingOutput {
    values: Vec<Values>,
    on_device: Option<OnDevice>,
}

/// Where a device is at work on a batch.
#[derive(Debug)]
pub(crate) struct OnDevice {
    pub(crate) copied_in: Span,
    pub(crate) computed: Span,
    /// What it computed, if that is to be known.
    pub(crate) laps: Option<LapTimer>,
}

/// What was computed of a batch.
#[derive(Debug, Default)]
pub struct ModelOutput {
    /// For each column the values of all sequences, one after the other.
    pub columns: Vec<Buffer<f32>>,
    /// What the device took for it; `None` where it was computed while it was asked for.
    pub times: Option<DeviceTimes>,
}

impl PendingOutput {
    /// The values of each column, computed by a device that still works, if one does.
    pub(crate) fn new(values: Vec<Values>, on_device: Option<OnDevice>) -> Self {
        Self { values, on_device }
    }

    /// Whether it is computed, so that there is nothing to wait for.
    pub fn is_computed(&self) -> bool {
        self.on_device.is_none()
    }

    /// Waits for it.
    pub fn finish(self) -> Result<ModelOutput, EsmError> {
        let mut times = self.on_device.map(OnDevice::wait).transpose()?;
        let mut columns = Vec::with_capacity(self.values.len());
        for values in self.values {
            columns.push(match values {
                Values::Here(values) => values,
                Values::Coming(arrivals) => {
                    let (values, took) = arrivals.wait()?;
                    times.get_or_insert_default().d2h += took;
                    values
                }
            });
        }
        Ok(ModelOutput { columns, times })
    }
}

impl OnDevice {
    /// Waits until it is computed.
    fn wait(self) -> Result<DeviceTimes, EsmError> {
        let compute = self.computed.took()?;
        let begin = self.computed.begin();
        Ok(DeviceTimes {
            h2d: self.copied_in.took()?,
            compute,
            kernels: self.laps.map(|laps| laps.times(begin)).transpose()?,
            ..DeviceTimes::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_computed_and_has_no_time_of_a_device() {
        let values = [vec![1.0, 2.0], vec![3.0]].map(|values| Values::Here(values.into()));
        let pending = PendingOutput::new(values.into(), None);
        assert!(pending.is_computed());
        let computed = pending.finish().unwrap();
        assert_eq!(computed.columns[0][..], [1.0, 2.0]);
        assert_eq!(computed.columns[1][..], [3.0]);
        assert_eq!(computed.times, None);
    }
}
