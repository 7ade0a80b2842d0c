//! Activity of the units of a GPU, from its performance monitors (GPM): Hopper and later, without privileges.

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use plmkit_logs::GpuSample;

const METRICS: [GpmMetricId; 5] = [
    GpmMetricId::SmUtil,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
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
        let metrics = match &self.previous {
            Some(before) => gpm_metrics_get(self.nvml, before, &now, &METRICS),
            None => Ok(Vec::new()),
        };
        self.previous = Some(now);
        // An unknown metric stays empty.
        for metric in metrics?.into_iter().flatten() {
            // A counter that wraps gives an impossible value.
            let value = Some(metric.value).filter(|value| value.is_finite() && *value >= 0.0);
            let percent = value.map(|percent| tenth(percent.min(100.0)));
            match metric.metric_id {
                GpmMetricId::SmUtil => sample.sm_active = percent,
                GpmMetricId::AnyTensorUtil => sample.tensor_active = percent,
                GpmMetricId::DramBwUtil => sample.dram_active = percent,
                GpmMetricId::PcieRxPerSec => sample.pcie_rx_mib_s = value.map(tenth),
                GpmMetricId::PcieTxPerSec => sample.pcie_tx_mib_s = value.map(tenth),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Rounds to a tenth.
pub(super) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
