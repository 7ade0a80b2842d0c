//! Samples GPUs, follows runs while they work, reports on both, and exports metrics for Prometheus.

pub mod command;
pub mod devices;
pub mod export;
pub mod live;
mod nvml;
mod recorder;
pub mod report;

pub use nvml::{DriverVersions, Sampler};
pub use recorder::Recorder;

#[cfg(test)]
mod tests;
