//! Metrics of runs.

use super::seconds;
use super::text::{Histogram, Labels, Metric, MetricsText};
use crate::live::{RunState, RunStatus};
use crate::report::{QueueState, RunSummary};

const COUNTERS: [Metric<RunStatus>; 6] = [
    (
        "plmkit_run_batches_total",
        "Batches that the run has computed.",
        |run| Some(run.summary.batches as f64),
    ),
    (
        "plmkit_run_sequences_total",
        "Sequences (rows) that the run has computed.",
        |run| Some(run.summary.sequences as f64),
    ),
    (
        "plmkit_run_tokens_total",
        "Tokens that the run has computed, <cls> and <eos> included.",
        |run| Some(run.summary.tokens as f64),
    ),
    (
        "plmkit_run_residues_total",
        "Residues that the run has computed.",
        |run| Some(run.summary.residues as f64),
    ),
    (
        "plmkit_run_rejected_sequences_total",
        "Sequences (rows) that could not be embedded.",
        |run| Some(run.summary.rejected as f64),
    ),
    (
        "plmkit_run_oom_splits_total",
        "How many times a batch was halved because memory ran out.",
        |run| Some(run.summary.oom_splits as f64),
    ),
];

const GAUGES: [Metric<RunStatus>; 8] = [
    (
        "plmkit_run_batches_expected",
        "Batches that the run will compute.",
        |run| Some(run.summary.batches_total? as f64),
    ),
    (
        "plmkit_run_batches_saved",
        "Batches taken over from an earlier, interrupted run.",
        |run| Some(run.summary.batches_saved? as f64),
    ),
    (
        "plmkit_run_sequences_expected",
        "Sequences (rows) that the run will compute.",
        |run| Some(run.progress.sequences_total? as f64),
    ),
    (
        "plmkit_run_tokens_expected",
        "Tokens that the run will compute.",
        |run| Some(run.progress.tokens_total? as f64),
    ),
    (
        "plmkit_run_remaining_seconds",
        "Time that is left at the recent rate, of a run at work.",
        |run| run.progress.eta_s,
    ),
    (
        "plmkit_run_queue_depth",
        "Batches that lay ready when the last one was taken.",
        |run| Some(run.recent.queue_depth? as f64),
    ),
    (
        "plmkit_run_packing_ratio",
        "Mean of how full the batches were, the last of each file left out.",
        |run| run.summary.packing.mean_utilization,
    ),
    (
        "plmkit_run_last_event_timestamp_seconds",
        "When something was heard of the run last, in seconds since 1970.",
        |run| Some(seconds(run.last_event)),
    ),
];

const START: [Metric<RunStatus>; 1] = [(
    "plmkit_run_start_timestamp_seconds",
    "When the run began, in seconds since 1970.",
    |run| run.summary.started.map(seconds),
)];

/// Adds the metrics of all runs that are known.
pub(super) fn write(text: &mut MetricsText, runs: &[RunStatus]) {
    let labels = |run: &RunStatus| Labels::default().with("run", Some(&run.summary.run));
    let runs: Vec<(&RunStatus, Labels)> = runs.iter().map(|run| (run, labels(run))).collect();
    write_names(text, &runs);
    write_states(text, &runs);
    text.table("counter", &COUNTERS, &runs);
    text.table("gauge", &GAUGES, &runs);
    text.table("gauge", &START, &runs);
    let waits = runs.iter();
    let waits =
        waits.filter_map(|(run, labels)| Some((labels.clone(), wait_histogram(&run.summary)?)));
    text.histograms(
        "plmkit_run_wait_seconds",
        "How long the device waited for a batch; a wait as long as a bound counts above it.",
        &waits.collect::<Vec<_>>(),
    );
    write_stages(text, &runs);
}

fn write_names(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    let infos = runs.iter().map(|(status, labels)| {
        let run = &status.summary;
        let labels = labels
            .with("tool", run.tool.as_ref())
            .with("version", run.version.as_ref())
            .with("device", run.device.as_ref())
            .with("dtype", run.dtype.as_ref())
            .with("model_digest", run.model_digest.as_ref());
        (labels, Some(1.0))
    });
    text.metric(
        "gauge",
        "plmkit_run_info",
        "A run, and what it computes with.",
        infos,
    );
    let gpus = runs.iter().flat_map(|(status, labels)| {
        let uuids = status.summary.gpu_uuids.iter().flatten();
        uuids.map(|uuid| (labels.with("uuid", Some(uuid)), Some(1.0)))
    });
    text.metric(
        "gauge",
        "plmkit_run_gpu_info",
        "A GPU that a run computes on.",
        gpus,
    );
}

fn write_states(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    text.states(
        "plmkit_run_state",
        "1 for the state of the run, 0 for the others: running; silent, when nothing was heard of it for long; \
         failed; stopped; done.",
        &RunState::ALL.map(RunState::name),
        runs.iter().map(|(run, labels)| (labels.clone(), run.state.name())),
    );
    text.states(
        "plmkit_run_queue_state",
        "1 for the state of the queue over the run's last minute, 0 for the others: full, when the device found its \
         next batch ready; normal; starved, when it waited long.",
        &QueueState::ALL.map(QueueState::name),
        runs.iter()
            .filter_map(|(run, labels)| Some((labels.clone(), run.recent.queue?.name()))),
    );
}

/// The report's bins, one upon the other.
fn wait_histogram(run: &RunSummary) -> Option<Histogram> {
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

fn write_stages(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    let stages = runs.iter().flat_map(|(status, labels)| {
        let stages = &status.summary.stages;
        let stages = [
            ("wait", &stages.wait),
            ("h2d", &stages.h2d),
            ("compute", &stages.compute),
            ("d2h", &stages.d2h),
            ("write", &stages.write),
        ];
        stages.map(|(name, stage)| {
            let spent_s = stage.as_ref().map(|stage| stage.total_ms / 1000.0);
            (labels.with("stage", Some(name)), spent_s)
        })
    });
    text.metric(
        "counter",
        "plmkit_run_stage_seconds_total",
        "Time spent on batches, by stage; stages may overlap.",
        stages,
    );
}

#[cfg(test)]
mod tests {
    use plmkit_logs::Timestamp;
    use plmkit_logs::event::Event;

    use super::*;
    use crate::live::LiveRuns;
    use crate::tests::{batch, started};

    fn text(events: impl IntoIterator<Item = Event>) -> String {
        let now: Timestamp = "2026-01-31T12:00:00.500Z".parse().unwrap();
        let mut runs = LiveRuns::default();
        for event in events {
            runs.add(&event, now);
        }
        let mut text = MetricsText::default();
        write(&mut text, &runs.status(now));
        text.finish()
    }

    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "expected {line} in\n{text}"
        );
    }

    #[test]
    fn a_run_that_says_little_has_no_zeros_for_what_it_does_not_say() {
        let text = text([started(|_| {})]);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<&str> = lines.map(|line| line.split('{').next().unwrap()).collect();
        names.dedup();
        let expected = [
            "plmkit_run_info",
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
        let batches = [0.5, 80.0, 1500.0].into_iter().enumerate();
        let batches = batches.map(|(number, wait_ms)| {
            batch(number as u64, |batch| {
                (batch.elapsed_s, batch.wait_ms) = (Some(number as f64), Some(wait_ms));
                batch.compute_ms = Some(2500.0);
            })
        });
        let text = text(batches);
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
