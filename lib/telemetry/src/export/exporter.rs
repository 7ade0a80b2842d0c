//! Families about the exporter itself.

use super::Family;
use super::family::Labels;
use crate::Timestamp;

/// Families of an exporter whose last sample was `taken` then, and whether a driver told it of GPUs.
pub(super) fn families(taken: Timestamp, driver_up: bool) -> Vec<Family> {
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
    let mut driver = Family::count(
        "plmkit_exporter_driver_up",
        "Whether a driver tells of GPUs, 1 or 0; one that is not there is looked for every minute.",
    );
    driver.add(&all, Some(f64::from(u8::from(driver_up))));
    vec![info, sampled, driver]
}

/// Seconds since 1970.
pub(super) fn seconds(time: Timestamp) -> f64 {
    time.unix_ms() as f64 / 1000.0
}
