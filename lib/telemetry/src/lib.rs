//! Samples GPUs and the host, follows runs while they work, reports on both, and exports metrics for Prometheus.

pub mod command;
pub mod devices;
pub mod export;
mod host;
pub mod live;
mod nvml;
mod recorder;
pub mod report;
mod sampler;

pub use nvml::DriverVersions;
pub use recorder::Recorder;
pub use sampler::Sampler;

#[cfg(test)]
mod tests;
