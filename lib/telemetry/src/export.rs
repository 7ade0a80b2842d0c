//! Metrics of GPUs and runs for Prometheus.
//!
//! Names and units follow the Prometheus conventions: base units (seconds, bytes, hertz, celsius, watts, joules,
//! ratios from 0 to 1), `_total` for counters, `_info` for a metric whose content is its labels. An unknown value has
//! no line.

use std::fmt::Write;

use plmkit_logs::event::WAIT_EDGES_MS;
use plmkit_logs::{GpuSample, METRICS, QueueState, Timestamp};
use strum::VariantNames;

use crate::live::{RunState, RunStatus};

/// The media type of [`prometheus_text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The name and the text of each label. One whose text is unknown or empty is left out.
type Labels = Vec<(&'static str, Option<String>)>;

/// A value of a metric: the end of its name beyond that of the metric, labels of its own, and how much it is, if known.
type Value = (&'static str, Labels, Option<f64>);

/// A metric of a `T`: its kind (`gauge`, `counter` or `histogram`), its name, its help text, and its values.
type Metric<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> Vec<Value>,
);

#[rustfmt::skip]
const OF_EXPORTER: &[Metric<[GpuSample]>] = &[
    ("gauge", "plmkit_exporter_info", "The program that exports.", |_| named("version", [(env!("CARGO_PKG_VERSION"), 1.0)])),
    ("gauge", "plmkit_exporter_last_sample_timestamp_seconds", "When GPUs were looked at last, in seconds since 1970.", |rows| one(seconds(rows.first().map_or_else(Timestamp::now, |row| row.timestamp)))),
    ("gauge", "plmkit_exporter_driver_up", "Whether a GPU answers, 1 or 0; a driver that is not there is looked for every minute.", |rows| one(f64::from(rows.iter().any(GpuSample::has_values)))),
];

/// What is no number of the log.
#[rustfmt::skip]
const OF_GPU: &[Metric<GpuSample>] = &[
    ("gauge", "plmkit_gpu_info", "A GPU that the driver sees, or saw.", |gpu| vec![("", vec![("name", gpu.name.clone())], Some(1.0))]),
    ("gauge", "plmkit_gpu_throttled", "Whether anything holds the clocks down, 1 or 0; idling does not count.", |gpu| one(gpu.throttle.as_ref().map(|throttle| f64::from(throttle.active())))),
    ("gauge", "plmkit_gpu_throttle_reason", "What holds the clocks down, by the driver's names.", |gpu| named("reason", gpu.throttle.iter().flat_map(|throttle| &throttle.0).map(|reason| (reason, 1.0)))),
    ("gauge", "plmkit_gpu_processes", "Processes that compute on the GPU.", |gpu| one(gpu.processes.as_ref().map(|processes| processes.0.len() as f64))),
];

#[rustfmt::skip]
const OF_RUN: &[Metric<RunStatus>] = &[
    ("gauge", "plmkit_run_info", "A run, and what it computes with.", |run| {
        let run = run.summary.setup.clone();
        let labels = vec![
            ("tool", Some(run.tool)), ("version", Some(run.version)), ("device", run.device), ("dtype", run.dtype), ("model", run.model),
            ("model_digest", run.model_digest), ("host", run.host), ("driver_version", run.driver_version), ("cuda_version", run.cuda_version),
        ];
        vec![("", labels, Some(1.0))]
    }),
    ("gauge", "plmkit_run_gpu_info", "A GPU that a run computes on.", |run| named("uuid", run.summary.setup.gpu_uuids.iter().flatten().map(|uuid| (uuid, 1.0)))),
    ("gauge", "plmkit_run_state", "1 for the state of the run, 0 for the others: running; silent, when nothing was heard of it for long; gone, when its process is; failed; stopped; done.", |run| states(RunState::VARIANTS, run.state.into())),
    ("gauge", "plmkit_run_queue_state", "1 for the state of the queue over the run's last minute, 0 for the others: full, when the device found its next batch ready; normal; starved, when it waited long.", |run| run.recent.queue.map_or_else(Vec::new, |queue| states(QueueState::VARIANTS, queue.into()))),
    ("counter", "plmkit_run_batches_total", "Batches that the run has computed.", |run| count(run.summary.total.batches)),
    ("counter", "plmkit_run_sequences_total", "Sequences (rows) that the run has computed.", |run| count(run.summary.total.sequences)),
    ("counter", "plmkit_run_tokens_total", "Tokens that the run has computed, <cls> and <eos> included.", |run| count(run.summary.total.tokens)),
    ("counter", "plmkit_run_residues_total", "Residues that the run has computed.", |run| count(run.summary.total.residues)),
    ("counter", "plmkit_run_rejected_sequences_total", "Sequences (rows) that could not be embedded.", |run| count(run.summary.total.rejected)),
    ("counter", "plmkit_run_oom_splits_total", "How many times a batch was halved because memory ran out.", |run| count(run.summary.total.oom_splits)),
    ("gauge", "plmkit_run_batches_expected", "Batches that the run will compute.", |run| count(run.summary.setup.batches_total)),
    ("gauge", "plmkit_run_batches_saved", "Batches taken over from an earlier, interrupted run.", |run| count(run.summary.setup.batches_saved)),
    ("gauge", "plmkit_run_sequences_expected", "Sequences (rows) that the run will compute.", |run| count(run.summary.setup.sequences_total)),
    ("gauge", "plmkit_run_tokens_expected", "Tokens that the run will compute.", |run| count(run.summary.setup.tokens_total)),
    ("gauge", "plmkit_run_remaining_seconds", "Time that is left at the recent rate, of a run at work.", |run| one(run.progress.eta_s)),
    ("gauge", "plmkit_run_queue_depth", "Batches that lay ready when the last one was taken.", |run| count(run.recent.queue_depth)),
    ("gauge", "plmkit_run_idle_ratio", "Share of the run's time in which its device had no work; without the time of loading.", |run| one(run.summary.idle_share)),
    ("gauge", "plmkit_run_wait_ratio", "Share of the run's last minute in which its device waited for batches.", |run| one(run.recent.wait_share)),
    ("gauge", "plmkit_run_packing_ratio", "Mean of how full the batches were, the last of each file left out.", |run| one(run.summary.mean_fill)),
    ("gauge", "plmkit_run_last_event_timestamp_seconds", "When something was heard of the run last, in seconds since 1970.", |run| one(seconds(run.last_event))),
    ("gauge", "plmkit_run_start_timestamp_seconds", "When the run began, in seconds since 1970.", |run| one(run.summary.setup.time.map(seconds))),
    ("histogram", "plmkit_run_wait_seconds", "How long the device waited for a batch; a wait as long as a bound counts above it.", waits),
    ("counter", "plmkit_run_stage_seconds_total", "Time spent on batches, by stage; stages may overlap.", |run| {
        named("stage", run.summary.total.stages.iter().map(|(name, stage)| (name, stage.ms / 1000.0)))
    }),
];

/// Returns all metrics of a moment in Prometheus' text format 0.0.4. `rows` has one sample for each GPU.
///
/// ```
/// use plmkit_logs::{GpuSample, Timestamp};
/// use plmkit_telemetry::export::prometheus_text;
///
/// let mut row = GpuSample::at(Timestamp::now());
/// row.index = Some(0);
/// row.gpu_util = Some(97);
/// let text = prometheus_text(&[row], &[]);
/// assert!(text.contains("plmkit_gpu_utilization_ratio{index=\"0\"} 0.97\n"));
/// ```
pub fn prometheus_text(rows: &[GpuSample], runs: &[RunStatus]) -> String {
    let mut text = String::new();
    write_all(&mut text, OF_EXPORTER, &[(rows, Vec::new())]);
    let gpus = rows.iter().filter(|row| row.index.is_some());
    let gpus = gpus.map(|row| {
        let index = row.index.map(|index| index.to_string());
        (row, vec![("uuid", row.uuid.clone()), ("index", index)])
    });
    let gpus: Vec<(&GpuSample, Labels)> = gpus.collect();
    write_all(&mut text, OF_GPU, &gpus);
    for metric in METRICS {
        let value = |row: &GpuSample| one((metric.value)(row).map(|value| metric.in_base(value)));
        let (kind, name) = (metric.kind(), metric.prometheus);
        write(&mut text, kind, name, metric.help, &gpus, value);
    }
    let runs = runs.iter();
    let runs: Vec<_> = runs
        .map(|run| (run, vec![("run", Some(run.summary.name.clone()))]))
        .collect();
    write_all(&mut text, OF_RUN, &runs);
    text
}

/// Returns a value for each text of a label.
fn named<T: ToString>(
    label: &'static str,
    values: impl IntoIterator<Item = (T, f64)>,
) -> Vec<Value> {
    let values = values.into_iter();
    let values =
        values.map(|(text, value)| ("", vec![(label, Some(text.to_string()))], Some(value)));
    values.collect()
}

fn states(all: &[&str], current: &str) -> Vec<Value> {
    let states = all.iter();
    named(
        "state",
        states.map(|state| (state, f64::from(*state == current))),
    )
}

fn one(value: impl Into<Option<f64>>) -> Vec<Value> {
    vec![("", Labels::new(), value.into())]
}

fn count(count: impl Into<Option<u64>>) -> Vec<Value> {
    one(count.into().map(|count| count as f64))
}

/// Returns the seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.unix_ms() as f64 / 1000.0
}

/// Returns the report's bins of waits as a histogram; its counts are cumulative.
fn waits(run: &RunStatus) -> Vec<Value> {
    let total = &run.summary.total;
    let Some(wait) = total.stages.get("wait") else {
        return Vec::new();
    };
    let mut count = 0;
    let bounds = WAIT_EDGES_MS.into_iter().map(Some).chain([None]);
    let buckets = total.waits.iter().zip(bounds).map(|(batches, bound_ms)| {
        count += batches;
        let seconds = bound_ms.map(|bound_ms| (bound_ms / 1000.0).to_string());
        let seconds = seconds.unwrap_or_else(|| "+Inf".to_owned());
        ("_bucket", vec![("le", Some(seconds))], Some(count as f64))
    });
    let mut values: Vec<Value> = buckets.collect();
    values.push(("_sum", Labels::new(), Some(wait.ms / 1000.0)));
    values.push(("_count", Labels::new(), Some(count as f64)));
    values
}

fn write_all<T: ?Sized>(text: &mut String, metrics: &[Metric<T>], items: &[(&T, Labels)]) {
    for &(kind, name, help, values) in metrics {
        write(text, kind, name, help, items, values);
    }
}

/// Writes a metric of all items. A value that is unknown or not finite has no line. A metric without lines is left out.
fn write<T: ?Sized>(
    text: &mut String,
    kind: &str,
    name: &str,
    help: &str,
    items: &[(&T, Labels)],
    values: impl Fn(&T) -> Vec<Value>,
) {
    let mut lines = String::new();
    for (item, common) in items {
        for (end, own, value) in values(item) {
            let Some(value) = value.filter(|value| value.is_finite()) else {
                continue;
            };
            let labels = common.iter().chain(&own).filter_map(|(name, text)| {
                let text = text.as_deref().filter(|text| !text.is_empty())?;
                Some(format!("{name}=\"{}\"", escape(text).replace('"', "\\\"")))
            });
            let labels = labels.collect::<Vec<_>>().join(",");
            let labels = Some(labels).filter(|labels| !labels.is_empty());
            let labels = labels.map_or_else(String::new, |labels| format!("{{{labels}}}"));
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{name}{end}{labels} {value}");
        }
    }
    if !lines.is_empty() {
        let help = escape(help);
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
