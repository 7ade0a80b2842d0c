//! Families about the exporter itself.

use super::Family;
use super::family::Labels;
use crate::Timestamp;

/// Families of an exporter whose last sample was `taken` then.
pub(super) fn families(taken: Timestamp) -> Vec<Family> {
    let all = Labels::default();
    let mut info = Family::info("plmkit_exporter", "The program that exports.");
    info.add(
        &all.with("version", Some(env!("CARGO_PKG_VERSION"))),
        Some(1.0),
    );
    let mut sampled = Family::gauge(
        "plmkit_exporter_last_sample_timestamp_seconds",
        "seconds",
        "When GPUs and host were looked at last, in seconds since 1970.",
    );
    sampled.add(&all, Some(seconds(taken)));
    vec![info, sampled]
}

/// Seconds since 1970.
pub(super) fn seconds(time: Timestamp) -> f64 {
    time.unix_ms() as f64 / 1000.0
}
