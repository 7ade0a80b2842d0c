//! The text that Prometheus gets.

use plmkit_logs::event::Event;

use super::*;
use crate::live::LiveRuns;
use crate::tests::{batch, started};

#[test]
fn metrics_have_help_type_and_a_line_for_each_known_value() {
    let mut text = String::new();
    let run = vec![("run", Some("a\"b\\c\nd".to_owned()))];
    let items = [(&Some(1e16), Vec::new()), (&Some(0.25), run)];
    let help = "names\\ a \"thing\"\nx";
    let joules = "plmkit_y_joules_total";
    let with_worker = |value: &Option<f64>| vec![("", vec![("worker", None)], *value)];
    write(&mut text, "counter", joules, help, &items, with_worker);
    let unknown = [(&None, Vec::new()), (&Some(f64::NAN), Vec::new())];
    let never = "plmkit_never";
    write(
        &mut text,
        "gauge",
        never,
        "not there",
        &unknown,
        with_worker,
    );
    let expected = r#"# HELP plmkit_y_joules_total names\\ a "thing"\nx
# TYPE plmkit_y_joules_total counter
plmkit_y_joules_total 10000000000000000
plmkit_y_joules_total{run="a\"b\\c\nd"} 0.25
"#;
    assert_eq!(text, expected);
}

/// The lines of runs.
fn text(events: impl IntoIterator<Item = Event>) -> String {
    let now: Timestamp = "2026-01-31T12:00:00.500Z".parse().unwrap();
    let mut runs = LiveRuns::default();
    for event in events {
        runs.add(&event, now);
    }
    let text = prometheus_text(&[], &runs.status(now));
    let lines = text.split_inclusive('\n');
    "\n".to_owned()
        + &lines
            .filter(|line| line.starts_with("plmkit_run"))
            .collect::<String>()
}

#[test]
fn an_unknown_value_has_no_line() {
    let text = text([started(|_| {})]);
    let lines = text.trim().lines();
    let mut names: Vec<&str> = lines.map(|line| line.split('{').next().unwrap()).collect();
    names.dedup();
    let expected = "info state batches_total sequences_total tokens_total residues_total \
                    rejected_sequences_total oom_splits_total last_event_timestamp_seconds";
    let expected = expected.split(' ').map(|name| format!("plmkit_run_{name}"));
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert!(text.contains("\nplmkit_run_info{run=\"r\"} 1\n"), "{text}");
}

#[test]
fn times_are_seconds_and_buckets_are_cumulative() {
    let batches = [0.5, 80.0, 1500.0].into_iter().enumerate();
    let batches = batches.map(|(number, wait_ms)| {
        batch(number as u64, |batch| {
            (batch.elapsed_s, batch.wait_ms) = (Some(number as f64), Some(wait_ms));
            batch.compute_ms = Some(2500.0);
        })
    });
    let text = text(batches);
    for line in [
        "stage_seconds_total{run=\"r\",stage=\"compute\"} 7.5",
        "wait_seconds_bucket{run=\"r\",le=\"0.0001\"} 0",
        "wait_seconds_bucket{run=\"r\",le=\"0.001\"} 1",
        "wait_seconds_bucket{run=\"r\",le=\"0.1\"} 2",
        "wait_seconds_bucket{run=\"r\",le=\"1\"} 2",
        "wait_seconds_bucket{run=\"r\",le=\"+Inf\"} 3",
        "wait_seconds_sum{run=\"r\"} 1.5805",
        "wait_seconds_count{run=\"r\"} 3",
        "stage_seconds_total{run=\"r\",stage=\"wait\"} 1.5805",
        "queue_state{run=\"r\",state=\"starved\"} 1",
        "queue_state{run=\"r\",state=\"full\"} 0",
        "state{run=\"r\",state=\"running\"} 1",
        "state{run=\"r\",state=\"done\"} 0",
        "last_event_timestamp_seconds{run=\"r\"} 1769860800.5",
    ] {
        let line = format!("\nplmkit_run_{line}\n");
        assert!(text.contains(&line), "expected {line} in\n{text}");
    }
}
