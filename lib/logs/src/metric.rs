//! The numbers of a [`GpuSample`] in one table, which the log, the exporter, the report, `top` and the documents share.

use crate::{GpuSample, METRICS};

/// What a column tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The GPU, as it answered at that moment.
    Gpu,
    /// The GPU, as the driver remembers it: known of a GPU that answers no more.
    Driver,
    /// The host.
    Host,
}

/// A number of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The column of the log.
    pub column: &'static str,
    /// The unit of the column, as it is written after a value; empty for a number of things.
    pub unit: &'static str,
    /// What it tells of.
    pub subject: Subject,
    /// The name for Prometheus, whose unit is the [base unit](Self::in_base). A name that ends in `_total` is a counter's.
    pub prometheus: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Whether reports have its mean, least and greatest value.
    pub in_reports: bool,
    /// Returns the value.
    pub value: fn(&GpuSample) -> Option<f64>,
}

impl Metric {
    /// Returns the metric of a column.
    pub fn of(column: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.column == column)
    }

    /// Returns a value in the base unit: a ratio, bytes or hertz.
    pub fn in_base(&self, value: f64) -> f64 {
        match self.unit {
            "%" => value / 100.0,
            "MiB" => value * 1_048_576.0,
            "MHz" => value * 1e6,
            _ => value,
        }
    }

    /// Returns its kind for Prometheus. A counter only grows until the driver is loaded again.
    pub fn kind(&self) -> &'static str {
        let is_counter = self.prometheus.ends_with("_total");
        if is_counter { "counter" } else { "gauge" }
    }
}
