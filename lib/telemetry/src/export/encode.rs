//! The two text forms of metric families.

use std::fmt::Write;

use super::family::{Family, Histogram, Kind, Sample, Value};

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text exposition format 0.0.4, which the textfile collector reads too.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The form that an `Accept` header asks for (RFC 9110, 12.5.1): `OpenMetrics` where it is liked at least as well as plain text.
    ///
    /// ```
    /// use plmkit_telemetry::export::Format;
    ///
    /// let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    /// assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    /// assert_eq!(Format::accepted("text/html, */*;q=0.8"), Format::Prometheus);
    /// assert_eq!(Format::accepted("application/openmetrics-text;q=0.1, text/plain"), Format::Prometheus);
    /// ```
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut known) = (1.0, true);
            for part in parts {
                match part.split_once('=') {
                    Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                    Some(("version", value)) if kind == "application/openmetrics-text" => {
                        known = matches!(value, "1.0.0" | "0.0.1");
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if known => open = open.max(quality),
                "text/plain" => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// The families that have samples, as text.
pub fn encode(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        header(&mut text, family, format);
        for sample in &family.samples {
            write_sample(&mut text, family, sample, format);
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// What the samples of a family are called, but for those of histograms.
fn sample_suffix(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    }
}

fn header(text: &mut String, family: &Family, format: Format) {
    let (name, help) = (
        family.name,
        escape(family.help, format == Format::OpenMetrics),
    );
    // In the older form a family has the name of its samples, and what only names something is a gauge.
    let (suffix, kind) = match (format, family.kind) {
        (_, Kind::Gauge) => ("", "gauge"),
        (_, Kind::Histogram) => ("", "histogram"),
        (Format::Prometheus, Kind::Counter) => ("_total", "counter"),
        (Format::OpenMetrics, Kind::Counter) => ("", "counter"),
        (Format::Prometheus, Kind::Info) => ("_info", "gauge"),
        (Format::OpenMetrics, Kind::Info) => ("", "info"),
    };
    put(
        text,
        format_args!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"),
    );
    if let Some(unit) = family.unit.filter(|_| format == Format::OpenMetrics) {
        put(text, format_args!("# UNIT {name} {unit}\n"));
    }
}

fn write_sample(text: &mut String, family: &Family, sample: &Sample, format: Format) {
    let (name, labels) = (family.name, &sample.labels);
    match &sample.value {
        Value::Number(value) => {
            line(text, name, sample_suffix(family.kind), labels, None, *value);
        }
        Value::Histogram(Histogram {
            buckets,
            count,
            sum,
        }) => {
            for &(bound, up_to) in buckets {
                // OpenMetrics writes a bound as a float with its point; so do Prometheus' own clients in the older form.
                let bound = match format {
                    Format::OpenMetrics => format!("{bound:?}"),
                    Format::Prometheus => bound.to_string(),
                };
                line(text, name, "_bucket", labels, Some(&bound), up_to as f64);
            }
            line(text, name, "_bucket", labels, Some("+Inf"), *count as f64);
            line(text, name, "_sum", labels, None, *sum);
            line(text, name, "_count", labels, None, *count as f64);
        }
    }
}

fn line(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&'static str, String)],
    bound: Option<&str>,
    value: f64,
) {
    put(text, format_args!("{name}{suffix}"));
    let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
    let mut open = '{';
    for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        put(
            text,
            format_args!("{open}{name}=\"{}\"", escape(value, true)),
        );
        open = ',';
    }
    if open == ',' {
        text.push('}');
    }
    put(text, format_args!(" {value}\n"));
}

/// Backslashes and line feeds, and quotes where the form asks for that.
fn escape(value: &str, quotes: bool) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes {
        value.replace('"', "\\\"")
    } else {
        value
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A string takes whatever it is given.
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::family::Labels;

    fn one_of_each() -> Vec<Family> {
        let run = Labels::default().with("run", Some("a\"b\\c\nd"));
        let mut info = Family::info("plmkit_x", "names\\ a \"thing\"\nx");
        info.add(&run, Some(1.0));
        let mut counter = Family::new(Kind::Counter, "plmkit_y_joules", Some("joules"), "grows");
        counter.add(&Labels::default(), Some(1e16));
        counter.add(&run.with("worker", None::<u32>), Some(0.25));
        let mut histogram = Family::new(
            Kind::Histogram,
            "plmkit_z_seconds",
            Some("seconds"),
            "sizes",
        );
        histogram.push(
            &Labels::default(),
            Value::Histogram(Histogram {
                buckets: vec![(0.001, 1), (1.0, 3)],
                count: 4,
                sum: 7.5,
            }),
        );
        let mut empty = Family::count("plmkit_never", "not there");
        empty.add(&Labels::default(), None);
        empty.add(&Labels::default(), Some(f64::NAN));
        vec![info, counter, histogram, empty]
    }

    #[test]
    fn prometheus_text_names_families_as_their_samples() {
        let expected = r#"# HELP plmkit_x_info names\\ a "thing"\nx
# TYPE plmkit_x_info gauge
plmkit_x_info{run="a\"b\\c\nd"} 1
# HELP plmkit_y_joules_total grows
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
"#;
        assert_eq!(encode(&one_of_each(), Format::Prometheus), expected);
    }

    #[test]
    fn openmetrics_has_units_plain_family_names_and_an_end() {
        let expected = r#"# HELP plmkit_x names\\ a \"thing\"\nx
# TYPE plmkit_x info
plmkit_x_info{run="a\"b\\c\nd"} 1
# HELP plmkit_y_joules grows
# TYPE plmkit_y_joules counter
# UNIT plmkit_y_joules joules
plmkit_y_joules_total 10000000000000000
plmkit_y_joules_total{run="a\"b\\c\nd"} 0.25
# HELP plmkit_z_seconds sizes
# TYPE plmkit_z_seconds histogram
# UNIT plmkit_z_seconds seconds
plmkit_z_seconds_bucket{le="0.001"} 1
plmkit_z_seconds_bucket{le="1.0"} 3
plmkit_z_seconds_bucket{le="+Inf"} 4
plmkit_z_seconds_sum 7.5
plmkit_z_seconds_count 4
# EOF
"#;
        assert_eq!(encode(&one_of_each(), Format::OpenMetrics), expected);
        assert_eq!(encode(&[], Format::OpenMetrics), "# EOF\n");
        assert_eq!(encode(&[], Format::Prometheus), "");
    }

    #[test]
    fn a_form_is_given_only_to_who_can_read_it() {
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "Application/OpenMetrics-Text ; version=1.0.0",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text; version=2.0.0",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=high", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
