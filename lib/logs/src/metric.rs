//! The numbers of a [`GpuSample`] in one table, which the log, the exporter, the report, `top` and the documents share.

use crate::{GpuSample, METRICS};

/// The unit of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// How it is written after a value.
    pub symbol: &'static str,
    /// A factor and a divisor. 0.01 is no number of a computer: 57 % would have 16 digits.
    base: [f64; 2],
}

impl Unit {
    /// Percent, 0 to 100.
    pub(crate) const PERCENT: Self = Self::new("%", [1.0, 100.0]);
    /// Mebibytes.
    pub(crate) const MIB: Self = Self::new("MiB", [1_048_576.0, 1.0]);
    /// Degrees Celsius.
    pub(crate) const CELSIUS: Self = Self::new("°C", [1.0; 2]);
    /// Watts.
    pub(crate) const WATT: Self = Self::new("W", [1.0; 2]);
    /// Joules.
    pub(crate) const JOULE: Self = Self::new("J", [1.0; 2]);
    /// Megahertz.
    pub(crate) const MEGAHERTZ: Self = Self::new("MHz", [1e6, 1.0]);
    /// A number of things.
    pub(crate) const COUNT: Self = Self::new("", [1.0; 2]);

    const fn new(symbol: &'static str, base: [f64; 2]) -> Self {
        Self { symbol, base }
    }

    /// Returns a value in the base unit: a ratio, bytes, bytes a second or hertz.
    pub fn in_base(self, value: f64) -> f64 {
        value * self.base[0] / self.base[1]
    }
}

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
    /// The unit of the column.
    pub unit: Unit,
    /// What it tells of.
    pub subject: Subject,
    /// The name for Prometheus, whose unit is the [base unit](Unit::in_base). A name that ends in `_total` is a counter's.
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

    /// Returns its kind for Prometheus. A counter only grows until the driver is loaded again.
    pub fn kind(&self) -> &'static str {
        let is_counter = self.prometheus.ends_with("_total");
        if is_counter { "counter" } else { "gauge" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_the_base_unit_has_the_name_of_that_unit() {
        for metric in METRICS {
            let ends = match metric.unit.symbol {
                "%" => "_ratio",
                "MiB" => "_bytes",
                "MiB/s" => "_bytes_per_second",
                "°C" => "_celsius",
                "W" => "_watts",
                "J" => "_joules_total",
                "MHz" => "_hertz",
                _ => "",
            };
            assert!(metric.prometheus.ends_with(ends), "{}", metric.prometheus);
        }
    }
}
