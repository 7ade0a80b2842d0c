//! The values of a batch that a device may still compute.

use plmkit_esm2::DeviceTimes;

use crate::CudaError;
use crate::timing::{LapTimer, Span};
use crate::transfer::Values;

/// The columns of a batch, and the device that computes them, if one does.
#[derive(Debug)]
pub(crate) struct PendingColumns {
    pub(crate) columns: Vec<Values>,
    pub(crate) on_device: Option<OnDevice>,
}

/// The work of a device for a batch.
#[derive(Debug)]
pub(crate) struct OnDevice {
    pub(crate) copied_in: Span,
    pub(crate) computed: Span,
    /// The times of each kind of work, if measured.
    pub(crate) laps: Option<LapTimer>,
}

impl PendingColumns {
    /// Waits for the values of each column and copies them `into` a slice of their size. Returns the device's times, if one computed.
    pub(crate) fn finish(self, into: &mut [&mut [f32]]) -> Result<Option<DeviceTimes>, CudaError> {
        let mut times = self.on_device.map(OnDevice::wait).transpose()?;
        for (values, into) in self.columns.into_iter().zip(into) {
            let took = values.copy_into(into)?;
            if let Some(times) = &mut times {
                times.d2h += took;
            }
        }
        Ok(times)
    }
}

impl OnDevice {
    /// Waits for the device and returns its times.
    fn wait(self) -> Result<DeviceTimes, CudaError> {
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
