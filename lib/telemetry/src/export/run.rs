//! Metrics of runs.

use strum::VariantNames;

use super::text::{Labels, Metric, MetricsText};
use super::{number, seconds};
use crate::live::{RunState, RunStatus};
use crate::report::QueueState;

#[rustfmt::skip]
const RUN_METRICS: &[Metric<RunStatus>] = &[
    ("counter", "plmkit_run_batches_total", "Batches that the run has computed.", |run| Some(run.summary.batches as f64)),
    ("counter", "plmkit_run_sequences_total", "Sequences (rows) that the run has computed.", |run| Some(run.summary.sequences as f64)),
    ("counter", "plmkit_run_tokens_total", "Tokens that the run has computed, <cls> and <eos> included.", |run| Some(run.summary.tokens as f64)),
    ("counter", "plmkit_run_residues_total", "Residues that the run has computed.", |run| Some(run.summary.residues as f64)),
    ("counter", "plmkit_run_rejected_sequences_total", "Sequences (rows) that could not be embedded.", |run| Some(run.summary.rejected as f64)),
    ("counter", "plmkit_run_oom_splits_total", "How many times a batch was halved because memory ran out.", |run| Some(run.summary.oom_splits as f64)),
    ("gauge", "plmkit_run_batches_expected", "Batches that the run will compute.", |run| number(run.summary.setup.batches_total)),
    ("gauge", "plmkit_run_batches_saved", "Batches taken over from an earlier, interrupted run.", |run| number(run.summary.setup.batches_saved)),
    ("gauge", "plmkit_run_sequences_expected", "Sequences (rows) that the run will compute.", |run| number(run.summary.setup.sequences_total)),
    ("gauge", "plmkit_run_tokens_expected", "Tokens that the run will compute.", |run| number(run.summary.setup.tokens_total)),
    ("gauge", "plmkit_run_remaining_seconds", "Time that is left at the recent rate, of a run at work.", |run| run.progress.eta_s),
    ("gauge", "plmkit_run_queue_depth", "Batches that lay ready when the last one was taken.", |run| number(run.recent.queue_depth)),
    ("gauge", "plmkit_run_idle_ratio", "Share of the run's time in which its device had no work; without the time of loading.", |run| run.summary.idle_share),
    ("gauge", "plmkit_run_wait_ratio", "Share of the run's last minute in which its device waited for batches.", |run| run.recent.wait_share),
    ("gauge", "plmkit_run_workers", "Workers that compute at once.", |run| number(run.summary.setup.workers)),
    ("gauge", "plmkit_run_packing_ratio", "Mean of how full the batches were, the last of each file left out.", |run| run.summary.packing.mean_fill),
    ("gauge", "plmkit_run_last_event_timestamp_seconds", "When something was heard of the run last, in seconds since 1970.", |run| Some(seconds(run.last_event))),
    ("gauge", "plmkit_run_start_timestamp_seconds", "When the run began, in seconds since 1970.", |run| run.summary.setup.time.map(seconds)),
];

/// Writes the metrics of all known runs.
pub(super) fn write(text: &mut MetricsText, runs: &[RunStatus]) {
    let labels = |run: &RunStatus| Labels::default().with("run", Some(&run.summary.setup.run));
    let runs: Vec<(&RunStatus, Labels)> = runs.iter().map(|run| (run, labels(run))).collect();
    write_names(text, &runs);
    write_states(text, &runs);
    text.table(RUN_METRICS, &runs);
    write_waits(text, &runs);
    write_stages(text, &runs);
}

fn write_names(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    let infos = runs.iter().map(|(status, labels)| {
        let run = &status.summary.setup;
        let labels = labels
            .with("tool", Some(&run.tool))
            .with("version", Some(&run.version))
            .with("device", run.device.as_ref())
            .with("dtype", run.dtype.as_ref())
            .with("model", run.model.as_ref())
            .with("model_digest", run.model_digest.as_ref())
            .with("host", run.host.as_ref())
            .with("driver_version", run.driver_version.as_ref())
            .with("cuda_version", run.cuda_version.as_ref());
        (labels, Some(1.0))
    });
    let help = "A run, and what it computes with.";
    text.metric("gauge", "plmkit_run_info", help, infos);
    let gpus = runs.iter().flat_map(|(status, labels)| {
        let uuids = status.summary.setup.gpu_uuids.iter().flatten();
        uuids.map(|uuid| (labels.with("uuid", Some(uuid)), Some(1.0)))
    });
    let help = "A GPU that a run computes on.";
    text.metric("gauge", "plmkit_run_gpu_info", help, gpus);
}

fn write_states(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    text.states(
        "plmkit_run_state",
        "1 for the state of the run, 0 for the others: running; silent, when nothing was heard of it for long; gone, when its process is; \
         failed; stopped; done.",
        RunState::VARIANTS,
        runs.iter().map(|(run, labels)| (labels.clone(), run.state.into())),
    );
    text.states(
        "plmkit_run_queue_state",
        "1 for the state of the queue over the run's last minute, 0 for the others: full, when the device found its \
         next batch ready; normal; starved, when it waited long.",
        QueueState::VARIANTS,
        runs.iter()
            .filter_map(|(run, labels)| Some((labels.clone(), run.recent.queue?.into()))),
    );
}

/// Writes the report's wait bins as a histogram; its counts are cumulative.
fn write_waits(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    let name = "plmkit_run_wait_seconds";
    let help = "How long the device waited for a batch; a wait as long as a bound counts above it.";
    let waits = runs
        .iter()
        .filter_map(|(run, labels)| Some((run, run.summary.stages["wait"].as_ref()?, labels)));
    let mut waits = waits.peekable();
    if waits.peek().is_some() {
        text.header("histogram", name, help);
    }
    for (run, wait, labels) in waits {
        let mut count = 0;
        for bin in &run.summary.queue.waits {
            count += bin.batches;
            let bound_s = bin.below_ms.map(|below_ms| (below_ms / 1000.0).to_string());
            let labels = labels.with("le", Some(bound_s.as_deref().unwrap_or("+Inf")));
            text.line(&format!("{name}_bucket"), &labels, count as f64);
        }
        text.line(&format!("{name}_sum"), labels, wait.total_ms / 1000.0);
        text.line(&format!("{name}_count"), labels, count as f64);
    }
}

fn write_stages(text: &mut MetricsText, runs: &[(&RunStatus, Labels)]) {
    let stages = runs.iter().flat_map(|(status, labels)| {
        status.summary.stages.iter().map(|(name, stage)| {
            let spent_s = stage.as_ref().map(|stage| stage.total_ms / 1000.0);
            (labels.with("stage", Some(name)), spent_s)
        })
    });
    let help = "Time spent on batches, by stage; stages may overlap.";
    text.metric("counter", "plmkit_run_stage_seconds_total", help, stages);
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
        text.0
    }

    #[test]
    fn an_unknown_value_has_no_line() {
        let text = text([started(|_| {})]);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<&str> = lines.map(|line| line.split('{').next().unwrap()).collect();
        names.dedup();
        let expected = "info state batches_total sequences_total tokens_total residues_total \
                        rejected_sequences_total oom_splits_total workers last_event_timestamp_seconds";
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
            "workers{run=\"r\"} 1",
            "wait_seconds_bucket{run=\"r\",le=\"0.0001\"} 0",
            "wait_seconds_bucket{run=\"r\",le=\"0.001\"} 1",
            "wait_seconds_bucket{run=\"r\",le=\"0.1\"} 2",
            "wait_seconds_bucket{run=\"r\",le=\"1\"} 2",
            "wait_seconds_bucket{run=\"r\",le=\"+Inf\"} 3",
            "wait_seconds_sum{run=\"r\"} 1.5805",
            "wait_seconds_count{run=\"r\"} 3",
            "stage_seconds_total{run=\"r\",stage=\"compute\"} 7.5",
            "queue_state{run=\"r\",state=\"starved\"} 1",
            "queue_state{run=\"r\",state=\"full\"} 0",
            "state{run=\"r\",state=\"running\"} 1",
            "last_event_timestamp_seconds{run=\"r\"} 1769860800.5",
        ] {
            let line = format!("\nplmkit_run_{line}\n");
            assert!(text.contains(&line), "expected {line} in\n{text}");
        }
    }
}
