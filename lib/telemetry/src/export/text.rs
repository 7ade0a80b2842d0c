//! The text form of metrics.

use std::fmt::{Display, Write};

/// A metric of a `T`: its name, what it means, and its value.
pub(super) type Metric<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// Text in the Prometheus exposition format 0.0.4. A value that is not known, or no number, has no line, and a metric without
/// values is left out.
#[derive(Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    /// Adds a metric of a kind: `gauge` or `counter`.
    pub(super) fn metric(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) {
        let values = values.into_iter();
        let known = values
            .filter_map(|(labels, value)| Some((labels, value.filter(|value| value.is_finite())?)));
        let mut known = known.peekable();
        if known.peek().is_some() {
            self.header(kind, name, help);
            known.for_each(|(labels, value)| self.line(name, &labels, value));
        }
    }

    /// Adds the metrics of a table, each with a value of each item.
    pub(super) fn table<T>(&mut self, kind: &str, metrics: &[Metric<T>], items: &[(&T, Labels)]) {
        for (name, help, value) in metrics {
            let values = items
                .iter()
                .map(|(item, labels)| (labels.clone(), value(item)));
            self.metric(kind, name, help, values);
        }
    }

    /// Adds a metric of what is one of several states: 1 for that one and 0 for the others.
    pub(super) fn states(
        &mut self,
        name: &str,
        help: &str,
        states: &[&str],
        items: impl IntoIterator<Item = (Labels, &'static str)>,
    ) {
        let values = items.into_iter().flat_map(|(labels, state)| {
            states.iter().map(move |one| {
                let is = f64::from(u8::from(*one == state));
                (labels.with("state", Some(one)), Some(is))
            })
        });
        self.metric("gauge", name, help, values);
    }

    /// Adds histograms.
    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        histograms: &[(Labels, Histogram)],
    ) {
        if histograms.is_empty() {
            return;
        }
        self.header("histogram", name, help);
        for (labels, histogram) in histograms {
            for (bound, count) in &histogram.buckets {
                let labels = labels.with("le", Some(bound));
                self.line(&format!("{name}_bucket"), &labels, *count as f64);
            }
            let all = labels.with("le", Some("+Inf"));
            self.line(&format!("{name}_bucket"), &all, histogram.count as f64);
            self.line(&format!("{name}_sum"), labels, histogram.sum);
            self.line(&format!("{name}_count"), labels, histogram.count as f64);
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn header(&mut self, kind: &str, name: &str, help: &str) {
        let help = escape(help);
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &Labels, value: f64) {
        self.0.push_str(name);
        for (position, (label, value)) in labels.0.iter().enumerate() {
            let open = if position == 0 { '{' } else { ',' };
            let value = escape(value).replace('"', "\\\"");
            let _ = write!(self.0, "{open}{label}=\"{value}\"");
        }
        let close = if labels.0.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }
}

/// Counts by size.
pub(super) struct Histogram {
    /// The upper bound of each bucket, and how many values are up to it, smaller ones too.
    pub(super) buckets: Vec<(f64, u64)>,
    /// How many values there are.
    pub(super) count: u64,
    /// Their sum.
    pub(super) sum: f64,
}

/// Labels of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// These labels and one more, where its value is known. An empty value is as good as no label and is left out.
    pub(super) fn with(&self, name: &'static str, value: Option<impl Display>) -> Self {
        let mut labels = self.clone();
        let value = value.map(|value| value.to_string());
        let value = value.filter(|value| !value.is_empty());
        labels.0.extend(value.map(|value| (name, value)));
        labels
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_help_type_and_a_line_for_each_known_value() {
        let mut text = MetricsText::default();
        let none = Labels::default();
        let run = none.with("run", Some("a\"b\\c\nd"));
        let joules = [
            (none.clone(), Some(1e16)),
            (run.with("worker", None::<u32>), Some(0.25)),
        ];
        text.metric(
            "counter",
            "plmkit_y_joules_total",
            "names\\ a \"thing\"\nx",
            joules,
        );
        text.metric(
            "gauge",
            "plmkit_never",
            "not there",
            [(none.clone(), None), (run, Some(f64::NAN))],
        );
        let histogram = Histogram {
            buckets: vec![(0.001, 1), (1.0, 3)],
            count: 4,
            sum: 7.5,
        };
        text.histograms("plmkit_z_seconds", "sizes", &[(none.clone(), histogram)]);
        text.histograms("plmkit_z_seconds", "sizes", &[]);
        text.states("plmkit_state", "state", &["on", "off"], [(none, "off")]);
        let expected = r#"# HELP plmkit_y_joules_total names\\ a "thing"\nx
# TYPE plmkit_y_joules_total counter
plmkit_y_joules_total 10000000000000000
plmkit_y_joules_total{run="a\"b\\c\nd"} 0.25
# HELP plmkit_z_seconds sizes
# TYPE plmkit_z_seconds histogram
plmkit_z_seconds_bucket{le="0.001"} 1
plmkit_z_seconds_bucket{le="1"} 3
plmkit_z_seconds_bucket{le="+Inf"} 4
plmkit_z_seconds_sum 7.5
plmkit_z_seconds_count 4
# HELP plmkit_state state
# TYPE plmkit_state gauge
plmkit_state{state="on"} 0
plmkit_state{state="off"} 1
"#;
        assert_eq!(text.finish(), expected);
    }
}
