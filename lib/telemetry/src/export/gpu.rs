//! Metrics of GPUs and of the host.

use plmkit_logs::{GpuSample, METRICS, Subject};

use super::flag;
use super::text::{Labels, MetricsText};

/// Writes the metrics of the rows of a moment.
pub(super) fn write(text: &mut MetricsText, rows: &[GpuSample]) {
    let gpus: Vec<(&GpuSample, Labels)> = rows
        .iter()
        .filter(|row| row.index.is_some())
        .map(|row| {
            let uuid = Labels::default().with("uuid", row.uuid.as_ref());
            (row, uuid.with("index", row.index))
        })
        .collect();
    let host = rows.first().map(|row| (row, Labels::default()));
    let host: Vec<(&GpuSample, Labels)> = host.into_iter().collect();
    text.metric(
        "gauge",
        "plmkit_gpu_info",
        "A GPU that the driver sees, or saw.",
        gpus.iter()
            .map(|(gpu, labels)| (labels.with("name", gpu.name.as_ref()), Some(1.0))),
    );
    for metric in METRICS {
        let rows = match metric.subject {
            Subject::Host => &host,
            Subject::Gpu | Subject::Driver => &gpus,
        };
        let values = rows.iter().map(|(row, labels)| {
            let value = (metric.value)(row).map(|value| metric.unit.in_base(value));
            (labels.clone(), value)
        });
        text.metric(metric.kind(), metric.prometheus, metric.help, values);
    }
    for (name, help, of) in FLAGS {
        let values = gpus.iter().flat_map(|(gpu, labels)| of(gpu, labels));
        text.metric("gauge", name, help, values);
    }
}

/// The values of a GPU, each with its labels.
type Flags = fn(&GpuSample, &Labels) -> Vec<(Labels, Option<f64>)>;

/// What is no number of the log.
#[rustfmt::skip]
const FLAGS: [(&str, &str, Flags); 3] = [
    ("plmkit_gpu_throttled", "Whether anything holds the clocks down, 1 or 0; idling does not count.", |gpu, labels| {
        vec![(labels.clone(), gpu.throttle.as_ref().map(|throttle| flag(throttle.active())))]
    }),
    ("plmkit_gpu_throttle_reason", "What holds the clocks down, by the driver's names.", |gpu, labels| {
        let reasons = gpu.throttle.iter().flat_map(|throttle| &throttle.0);
        reasons.map(|reason| (labels.with("reason", Some(reason)), Some(1.0))).collect()
    }),
    ("plmkit_gpu_processes", "Processes that compute on the GPU.", |gpu, labels| {
        vec![(labels.clone(), gpu.processes.as_ref().map(|processes| processes.0.len() as f64))]
    }),
];
