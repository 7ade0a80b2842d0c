//! What the units of a GPU do, from its performance monitors (GPM): Hopper and later, without privileges.

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

/// Activity between two readings: the first has none.
pub(super) struct Activity {
    nvml: &'static Nvml,
    previous: Option<GpmSample<'static>>,
}

impl Activity {
    /// `None` for a GPU without such monitors.
    pub(super) fn open(nvml: &'static Nvml, device: &Device) -> Option<Self> {
        // Drivers before 520 do not know the question.
        let supported = device.gpm_support().unwrap_or(false);
        supported.then_some(Self {
            nvml,
            previous: None,
        })
    }

    /// Fills in what the monitors tell since the reading before.
    pub(super) fn read(
        &mut self,
        device: &Device<'static>,
        sample: &mut GpuSample,
    ) -> Result<(), NvmlError> {
        let now = device.gpm_sample()?;
        let Some(before) = self.previous.replace(now) else {
            return Ok(());
        };
        let Some(now) = &self.previous else {
            return Ok(());
        };
        // One that is not known is left empty.
        for metric in gpm_metrics_get(self.nvml, &before, now, &METRICS)?
            .into_iter()
            .flatten()
        {
            // A counter that wraps makes a value that cannot be.
            let value = Some(metric.value).filter(|value| value.is_finite() && *value >= 0.0);
            let share = value.map(|percent| tenth(percent.min(100.0)));
            match metric.metric_id {
                GpmMetricId::SmUtil => sample.sm_active = share,
                GpmMetricId::AnyTensorUtil => sample.tensor_active = share,
                GpmMetricId::DramBwUtil => sample.dram_active = share,
                GpmMetricId::PcieRxPerSec => sample.pcie_rx_mib_s = value.map(tenth),
                GpmMetricId::PcieTxPerSec => sample.pcie_tx_mib_s = value.map(tenth),
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
