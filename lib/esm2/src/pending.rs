//! The output of a model, while it is computed and after.

use crate::timing::{DeviceTimes, LapTimer, Span};
use crate::transfer::Values;
use crate::{Buffer, EsmError};

/// An output that a device may still compute.
#[derive(Debug)]
pub struct PendingOutput {
    values: Vec<Values>,
    on_device: Option<OnDevice>,
}

/// The work of a device for a batch.
#[derive(Debug)]
pub(crate) struct OnDevice {
    pub(crate) copied_in: Span,
    pub(crate) computed: Span,
    /// The times of each kind of work, if measured.
    pub(crate) laps: Option<LapTimer>,
}

/// The output for a batch.
#[derive(Debug, Default)]
pub struct ModelOutput {
    /// For each column the values of all sequences in turn.
    pub columns: Vec<Buffer<f32>>,
    /// The device's times; `None` if the program computed the output itself.
    pub times: Option<DeviceTimes>,
}

impl PendingOutput {
    /// The values of each column, and the device that computes them, if one does.
    pub(crate) fn new(values: Vec<Values>, on_device: Option<OnDevice>) -> Self {
        Self { values, on_device }
    }

    /// Values that are complete.
    pub(crate) fn computed(values: Vec<Buffer<f32>>) -> Self {
        Self::new(values.into_iter().map(Values::Here).collect(), None)
    }

    /// Whether the output is complete, so that [`finish`](Self::finish) does not wait.
    pub fn is_computed(&self) -> bool {
        self.on_device.is_none()
    }

    /// Waits for the output.
    pub fn finish(self) -> Result<ModelOutput, EsmError> {
        let mut times = self.on_device.map(OnDevice::wait).transpose()?;
        let mut columns = Vec::with_capacity(self.values.len());
        for values in self.values {
            columns.push(match values {
                Values::Here(values) => values,
                Values::Coming(download) => {
                    let (values, took) = download.wait()?;
                    times.get_or_insert_default().d2h += took;
                    values
                }
            });
        }
        Ok(ModelOutput { columns, times })
    }
}

impl OnDevice {
    /// Waits for the device and returns its times.
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
    fn values_in_host_memory_are_complete_and_have_no_device_times() {
        let values = [vec![1.0, 2.0], vec![3.0]].map(|values| Values::Here(values.into()));
        let pending = PendingOutput::new(values.into(), None);
        assert!(pending.is_computed());
        let computed = pending.finish().unwrap();
        assert_eq!(computed.columns[0][..], [1.0, 2.0]);
        assert_eq!(computed.columns[1][..], [3.0]);
        assert_eq!(computed.times, None);
    }
}
