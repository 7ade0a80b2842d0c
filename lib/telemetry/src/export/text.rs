//! The text format of metrics.

use std::fmt::{Display, Write};

use super::flag;

/// A metric of a `T`: its kind (`gauge` or `counter`), its name, its help text, and its value.
pub(super) type Metric<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> Option<f64>,
);

/// Text in the Prometheus exposition format 0.0.4. A value that is unknown or not finite has no line. A metric without
/// values is left out.
#[derive(Default)]
pub(super) struct MetricsText(pub(super) String);

impl MetricsText {
    /// Writes a metric of a kind: `gauge` or `counter`.
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

    /// Writes each metric of a table, with the values of all items.
    pub(super) fn table<T: ?Sized>(&mut self, metrics: &[Metric<T>], items: &[(&T, Labels)]) {
        for (kind, name, help, value) in metrics {
            let values = items
                .iter()
                .map(|(item, labels)| (labels.clone(), value(item)));
            self.metric(kind, name, help, values);
        }
    }

    /// Writes the state of each item: 1 for its state, 0 for all others.
    pub(super) fn states(
        &mut self,
        name: &str,
        help: &str,
        states: &[&str],
        items: impl IntoIterator<Item = (Labels, &'static str)>,
    ) {
        let values = items.into_iter().flat_map(|(labels, current)| {
            states.iter().map(move |state| {
                let labels = labels.with("state", Some(state));
                (labels, Some(flag(*state == current)))
            })
        });
        self.metric("gauge", name, help, values);
    }

    pub(super) fn header(&mut self, kind: &str, name: &str, help: &str) {
        let help = escape(help);
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn line(&mut self, name: &str, labels: &Labels, value: f64) {
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

/// Labels of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// Returns these labels and one more. Without a value, or with an empty one, there is no new label.
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
        let help = "names\\ a \"thing\"\nx";
        text.metric("counter", "plmkit_y_joules_total", help, joules);
        let unknown = [(none.clone(), None), (run, Some(f64::NAN))];
        text.metric("gauge", "plmkit_never", "not there", unknown);
        text.states("plmkit_state", "state", &["on", "off"], [(none, "off")]);
        let expected = r#"# HELP plmkit_y_joules_total names\\ a "thing"\nx
# TYPE plmkit_y_joules_total counter
plmkit_y_joules_total 10000000000000000
plmkit_y_joules_total{run="a\"b\\c\nd"} 0.25
# HELP plmkit_state state
# TYPE plmkit_state gauge
plmkit_state{state="on"} 0
plmkit_state{state="off"} 1
"#;
        assert_eq!(text.0, expected);
    }
}
