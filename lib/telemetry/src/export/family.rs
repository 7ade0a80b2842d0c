//! Metric families.

/// Samples of one name, with what they mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name without `_total` or `_info`; it ends in the unit, where there is one.
    pub name: &'static str,
    /// A base unit, or none.
    pub unit: Option<&'static str>,
    /// What its values do.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    /// Its samples, each with other labels.
    pub samples: Vec<Sample>,
}

/// What the values of a family do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They go up and down.
    Gauge,
    /// They only grow, from 0 at a start.
    Counter,
    /// They are 1: what is told is in the labels.
    Info,
    /// They are counts by size.
    Histogram,
}

/// Labels and a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values; an empty value is as good as no label and is left out.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Counts by size.
    Histogram(Histogram),
}

/// Counts by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The upper bound of each bucket, and how many values are up to it, smaller ones too.
    pub buckets: Vec<(f64, u64)>,
    /// How many values there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Family {
    pub(super) fn new(
        kind: Kind,
        name: &'static str,
        unit: Option<&'static str>,
        help: &'static str,
    ) -> Self {
        debug_assert!(unit.is_none_or(|unit| name.ends_with(unit)), "{name}");
        Self {
            name,
            unit,
            kind,
            help,
            samples: Vec::new(),
        }
    }

    /// A gauge with its unit, the last part of its name.
    pub(super) fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, Some(unit), help)
    }

    /// A gauge of things that are counted.
    pub(super) fn count(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, None, help)
    }

    /// A counter of things.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, None, help)
    }

    pub(super) fn info(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Info, name, None, help)
    }

    /// Adds a sample where the value is known, and is a number.
    pub(super) fn add(&mut self, labels: &Labels, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.push(labels, Value::Number(value));
        }
    }

    pub(super) fn push(&mut self, labels: &Labels, value: Value) {
        self.samples.push(Sample {
            labels: labels.0.clone(),
            value,
        });
    }
}

/// Labels of a sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// These labels and one more, where its value is known.
    pub(super) fn with(&self, name: &'static str, value: Option<impl ToString>) -> Self {
        let mut labels = self.0.clone();
        let value = value.map(|value| value.to_string());
        labels.extend(
            value
                .filter(|value| !value.is_empty())
                .map(|value| (name, value)),
        );
        Self(labels)
    }
}
