//! Activity of the units of a GPU, from its performance monitors (GPM): Hopper and later, without privileges.

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use plmkit_logs::GpuSample;

use crate::host::tenth;

/// A metric, its column, and its greatest possible value.
type Metric = (GpmMetricId, fn(&mut GpuSample) -> &mut Option<f64>, f64);

#[rustfmt::skip]
const METRICS: [Metric; 5] = [
    (GpmMetricId::SmUtil, |row| &mut row.sm_active, 100.0),
    (GpmMetricId::AnyTensorUtil, |row| &mut row.tensor_active, 100.0),
    (GpmMetricId::DramBwUtil, |row| &mut row.dram_active, 100.0),
    (GpmMetricId::PcieRxPerSec, |row| &mut row.pcie_rx_mib_s, f64::MAX),
    (GpmMetricId::PcieTxPerSec, |row| &mut row.pcie_tx_mib_s, f64::MAX),
];

/// Activity between two readings. The first reading has none.
pub(super) struct Activity<'n> {
    nvml: &'n Nvml,
    previous: Option<GpmSample<'n>>,
}

impl<'n> Activity<'n> {
    /// Returns `None` for a GPU without performance monitors.
    pub(super) fn open(nvml: &'n Nvml, device: &Device) -> Option<Self> {
        // Drivers before 520 do not support the query.
        let supported = device.gpm_support().unwrap_or(false);
        supported.then_some(Self {
            nvml,
            previous: None,
        })
    }

    /// Fills in the activity since the previous reading.
    pub(super) fn read(
        &mut self,
        device: &Device<'n>,
        sample: &mut GpuSample,
    ) -> Result<(), NvmlError> {
        let now = device.gpm_sample()?;
        let ids = METRICS.map(|(id, ..)| id);
        let metrics = match &self.previous {
            Some(before) => gpm_metrics_get(self.nvml, before, &now, &ids),
            None => Ok(Vec::new()),
        };
        self.previous = Some(now);
        for (metric, (_, column, most)) in metrics?.into_iter().zip(METRICS) {
            // An unknown metric stays empty. A counter that wraps gives an impossible value.
            let value = metric.ok().map(|metric| metric.value);
            let value = value.filter(|value| value.is_finite() && *value >= 0.0);
            *column(sample) = value.map(|value| tenth(value.min(most)));
        }
        Ok(())
    }
}
