//! Families about runs.

use super::Family;
use super::exporter::seconds;
use super::family::{Histogram, Kind, Labels, Value};
use crate::live::{RunState, RunStatus};
use crate::report::{QueueState, RunSummary};

/// A count, and where it comes from.
type Counter = (&'static str, &'static str, fn(&RunSummary) -> u64);

const COUNTERS: [Counter; 6] = [
    (
        "plmkit_run_batches",
        "Batches that the run has computed.",
        |run| run.batches,
    ),
    (
        "plmkit_run_sequences",
        "Sequences (rows) that the run has computed.",
        |run| run.sequences,
    ),
    (
        "plmkit_run_tokens",
        "Tokens that the run has computed, <cls> and <eos> included.",
        |run| run.tokens,
    ),
    (
        "plmkit_run_residues",
        "Residues that the run has computed.",
        |run| run.residues,
    ),
    (
        "plmkit_run_rejected_sequences",
        "Sequences (rows) that could not be embedded.",
        |run| run.rejected,
    ),
    (
        "plmkit_run_oom_splits",
        "How many times a batch was halved because memory ran out.",
        |run| run.oom_splits,
    ),
];

/// A gauge, and where its value comes from.
type Gauge = (
    &'static str,
    Option<&'static str>,
    &'static str,
    fn(&RunStatus) -> Option<f64>,
);

const GAUGES: [Gauge; 8] = [
    (
        "plmkit_run_batches_expected",
        None,
        "Batches that the run will compute.",
        |run| Some(run.summary.batches_total? as f64),
    ),
    (
        "plmkit_run_batches_saved",
        None,
        "Batches taken over from an earlier, interrupted run.",
        |run| Some(run.summary.batches_saved? as f64),
    ),
    (
        "plmkit_run_sequences_expected",
        None,
        "Sequences (rows) that the run will compute.",
        |run| Some(run.progress.sequences_total? as f64),
    ),
    (
        "plmkit_run_tokens_expected",
        None,
        "Tokens that the run will compute.",
        |run| Some(run.progress.tokens_total? as f64),
    ),
    (
        "plmkit_run_remaining_seconds",
        Some("seconds"),
        "Time that is left at the recent rate, of a run at work.",
        |run| run.progress.eta_s,
    ),
    (
        "plmkit_run_queue_depth",
        None,
        "Batches that lay ready when the last one was taken.",
        |run| Some(run.recent.queue_depth? as f64),
    ),
    (
        "plmkit_run_packing_ratio",
        Some("ratio"),
        "Mean of how full the batches were, the last of each file left out.",
        |run| run.summary.packing.mean_utilization,
    ),
    (
        "plmkit_run_last_event_timestamp_seconds",
        Some("seconds"),
        "When something was heard of the run last, in seconds since 1970.",
        |run| Some(seconds(run.last_event)),
    ),
];

/// Families of all runs that are known.
pub(super) fn families(runs: &[RunStatus]) -> Vec<Family> {
    let runs: Vec<(&RunStatus, Labels)> = runs
        .iter()
        .map(|run| (run, Labels::default().with("run", Some(&run.summary.run))))
        .collect();
    let mut families = vec![info(&runs), gpus(&runs), state(&runs), queue_state(&runs)];
    for (name, help, count) in COUNTERS {
        let mut family = Family::counter(name, help);
        for (run, labels) in &runs {
            family.add(labels, Some(count(&run.summary) as f64));
        }
        families.push(family);
    }
    for (name, unit, help, value) in GAUGES {
        let mut family = Family::new(Kind::Gauge, name, unit, help);
        for (run, labels) in &runs {
            family.add(labels, value(run));
        }
        families.push(family);
    }
    families.extend([start(&runs), waits(&runs), stages(&runs)]);
    families
}

fn info(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut info = Family::info("plmkit_run", "A run, and what it computes with.");
    for (status, labels) in runs {
        let run = &status.summary;
        let labels = labels
            .with("tool", run.tool.as_ref())
            .with("version", run.version.as_ref())
            .with("device", run.device.as_ref())
            .with("dtype", run.dtype.as_ref())
            .with("model_digest", run.model_digest.as_ref());
        info.add(&labels, Some(1.0));
    }
    info
}

fn gpus(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut gpus = Family::info("plmkit_run_gpu", "A GPU that a run computes on.");
    for (status, labels) in runs {
        for uuid in status.summary.gpu_uuids.iter().flatten() {
            gpus.add(&labels.with("uuid", Some(uuid)), Some(1.0));
        }
    }
    gpus
}

fn state(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut state = Family::count(
        "plmkit_run_state",
        "1 for the state of the run, 0 for the others: running; silent, when nothing was heard of it for long; \
         failed; stopped; done.",
    );
    for (status, labels) in runs {
        for one in RunState::ALL {
            let is = f64::from(u8::from(status.state == one));
            state.add(&labels.with("state", Some(one.name())), Some(is));
        }
    }
    state
}

fn queue_state(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut state = Family::count(
        "plmkit_run_queue_state",
        "1 for the state of the queue over the run's last minute, 0 for the others: full, when the device found its \
         next batch ready; normal; starved, when it waited long.",
    );
    for (status, labels) in runs {
        let Some(queue) = status.recent.queue else {
            continue;
        };
        for (one, name) in [
            (QueueState::Full, "full"),
            (QueueState::Normal, "normal"),
            (QueueState::Starved, "starved"),
        ] {
            let is = f64::from(u8::from(queue == one));
            state.add(&labels.with("state", Some(name)), Some(is));
        }
    }
    state
}

fn start(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut start = Family::gauge(
        "plmkit_run_start_timestamp_seconds",
        "seconds",
        "When the run began, in seconds since 1970.",
    );
    for (status, labels) in runs {
        start.add(labels, status.summary.started.map(seconds));
    }
    start
}

fn waits(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut waits = Family::new(
        Kind::Histogram,
        "plmkit_run_wait_seconds",
        Some("seconds"),
        "How long the device waited for a batch; a wait as long as a bound counts above it.",
    );
    for (status, labels) in runs {
        if let Some(histogram) = histogram(&status.summary) {
            waits.push(labels, Value::Histogram(histogram));
        }
    }
    waits
}

/// The report's bins, one upon the other.
fn histogram(run: &RunSummary) -> Option<Histogram> {
    let total_ms = run.stages.wait.as_ref()?.total_ms;
    let mut count = 0;
    let mut buckets = Vec::new();
    for bin in &run.queue.waits {
        count += bin.batches;
        buckets.extend(bin.below_ms.map(|below_ms| (below_ms / 1000.0, count)));
    }
    Some(Histogram {
        buckets,
        count,
        sum: total_ms / 1000.0,
    })
}

fn stages(runs: &[(&RunStatus, Labels)]) -> Family {
    let mut family = Family::new(
        Kind::Counter,
        "plmkit_run_stage_seconds",
        Some("seconds"),
        "Time spent on batches, by stage; stages may overlap.",
    );
    for (status, labels) in runs {
        let stages = &status.summary.stages;
        for (name, stage) in [
            ("wait", &stages.wait),
            ("h2d", &stages.h2d),
            ("compute", &stages.compute),
            ("d2h", &stages.d2h),
            ("write", &stages.write),
        ] {
            let spent = stage.as_ref().map(|stage| stage.total_ms / 1000.0);
            family.add(&labels.with("stage", Some(name)), spent);
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::event::{BatchDone, Event, RunStarted};
    use crate::export::{Format, encode};
    use crate::live::LiveRuns;

    fn text(events: impl IntoIterator<Item = Event>) -> String {
        let now: Timestamp = "2026-01-31T12:00:00.500Z".parse().unwrap();
        let mut runs = LiveRuns::default();
        events.into_iter().for_each(|event| runs.add(event, now));
        encode(&families(&runs.status(now)), Format::Prometheus)
    }

    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "expected {line} in\n{text}"
        );
    }

    #[test]
    fn a_run_that_says_little_has_no_zeros_for_what_it_does_not_say() {
        let text = text([Event::Run(RunStarted {
            run: "r".to_owned(),
            ..RunStarted::default()
        })]);
        let names: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('{').next().unwrap())
            .collect();
        let expected = [
            "plmkit_run_info",
            "plmkit_run_state",
            "plmkit_run_state",
            "plmkit_run_state",
            "plmkit_run_state",
            "plmkit_run_state",
            "plmkit_run_batches_total",
            "plmkit_run_sequences_total",
            "plmkit_run_tokens_total",
            "plmkit_run_residues_total",
            "plmkit_run_rejected_sequences_total",
            "plmkit_run_oom_splits_total",
            "plmkit_run_last_event_timestamp_seconds",
        ];
        assert_eq!(names, expected);
        has(&text, "plmkit_run_info{run=\"r\"} 1");
    }

    #[test]
    fn times_are_seconds_and_buckets_hold_the_smaller_ones() {
        let batch = |batch, wait_ms| {
            Event::Batch(BatchDone {
                run: "r".to_owned(),
                batch,
                elapsed_s: Some(batch as f64),
                wait_ms: Some(wait_ms),
                compute_ms: Some(2500.0),
                ..BatchDone::default()
            })
        };
        let text = text([batch(0, 0.5), batch(1, 80.0), batch(2, 1500.0)]);
        for line in [
            "plmkit_run_wait_seconds_bucket{run=\"r\",le=\"0.0001\"} 0",
            "plmkit_run_wait_seconds_bucket{run=\"r\",le=\"0.001\"} 1",
            "plmkit_run_wait_seconds_bucket{run=\"r\",le=\"0.1\"} 2",
            "plmkit_run_wait_seconds_bucket{run=\"r\",le=\"1\"} 2",
            "plmkit_run_wait_seconds_bucket{run=\"r\",le=\"+Inf\"} 3",
            "plmkit_run_wait_seconds_sum{run=\"r\"} 1.5805",
            "plmkit_run_wait_seconds_count{run=\"r\"} 3",
            "plmkit_run_stage_seconds_total{run=\"r\",stage=\"compute\"} 7.5",
            "plmkit_run_queue_state{run=\"r\",state=\"starved\"} 1",
            "plmkit_run_queue_state{run=\"r\",state=\"full\"} 0",
            "plmkit_run_state{run=\"r\",state=\"running\"} 1",
            "plmkit_run_last_event_timestamp_seconds{run=\"r\"} 1769860800.5",
        ] {
            has(&text, line);
        }
    }
}
