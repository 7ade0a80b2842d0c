//! Figures of a GPU over a time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::value_count::ValueRange;

/// The values of a GPU over time, by the columns of the log and in their units. One that the driver never gave is not there.
pub type GpuValues = BTreeMap<&'static str, ValueRange>;

/// Figures of a GPU over a time. Means and shares are weighted by time, and `None` below half coverage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuFigures {
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for; `None` if the time is unknown.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole time: below 90 %.
    pub partial: bool,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// The most device memory that was seen in use, with any coverage.
    pub peak_mem_used_mib: Option<u64>,
    /// The highest temperature that was seen, with any coverage.
    pub max_temperature_c: Option<u32>,
    /// Share of the time in which it was hot.
    pub hot_share: Option<f64>,
    /// Share of the time in which its memory was as hot as the limit of its board, or hotter.
    pub hot_memory_share: Option<f64>,
    /// Mean power draw in watts: by the energy counter, or else the mean of the readings.
    pub mean_power_w: Option<f64>,
    /// Share of the time in which something held the clocks down; `None` if the driver does not say.
    pub throttled_share: Option<f64>,
    /// Share of the time by the reason that held the clocks down.
    pub throttle_reasons: Option<BTreeMap<String, f64>>,
    /// Share of the time with foreign processes on the GPU; `None` if no command was recorded.
    pub foreign_share: Option<f64>,
    /// Its values over the time.
    pub values: GpuValues,
    /// Shares of the time in which heat or the power supply held the clocks down, and in which nothing but a limit or a setting
    /// did, for findings.
    #[serde(skip)]
    pub(super) severe_share: Option<f64>,
    #[serde(skip)]
    pub(super) capped_share: Option<f64>,
}
