//! The numbers of a [`GpuSample`] in one table, which the log, the exporter, the report, `top` and the documents share.

use crate::{GpuSample, METRICS};

/// The unit of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent, 0 to 100.
    Percent,
    /// Mebibytes.
    Mib,
    /// Mebibytes a second.
    MibPerSecond,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watt,
    /// Joules.
    Joule,
    /// Megahertz.
    Megahertz,
    /// A number of things.
    Count,
}

impl Unit {
    /// Returns how it is written after a value.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Mib => "MiB",
            Self::MibPerSecond => "MiB/s",
            Self::Celsius => "°C",
            Self::Watt => "W",
            Self::Joule => "J",
            Self::Megahertz => "MHz",
            Self::Count => "",
        }
    }

    /// Returns a value in the base unit: a ratio, bytes, bytes a second or hertz.
    pub fn in_base(self, value: f64) -> f64 {
        match self {
            // 0.01 is no number of a computer: 57 % would have 16 digits.
            Self::Percent => value / 100.0,
            Self::Mib | Self::MibPerSecond => value * 1_048_576.0,
            Self::Megahertz => value * 1e6,
            Self::Celsius | Self::Watt | Self::Joule | Self::Count => value,
        }
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

    /// Whether the value only grows until the driver is loaded again.
    pub fn is_counter(&self) -> bool {
        self.prometheus.ends_with("_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_the_base_unit_has_the_name_of_that_unit() {
        for metric in METRICS {
            let ends = match metric.unit {
                Unit::Percent => "_ratio",
                Unit::Mib => "_bytes",
                Unit::MibPerSecond => "_bytes_per_second",
                Unit::Celsius => "_celsius",
                Unit::Watt => "_watts",
                Unit::Joule => "_joules_total",
                Unit::Megahertz => "_hertz",
                Unit::Count => "",
            };
            assert!(metric.prometheus.ends_with(ends), "{}", metric.prometheus);
        }
    }
}
