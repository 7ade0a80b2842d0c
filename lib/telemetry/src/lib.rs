//! Samples GPUs and the host, follows runs while they work, reports on both, and exports metrics for Prometheus.

mod background;
pub mod command;
pub mod devices;
pub mod export;
mod host;
pub mod live;
mod nvml;
mod process_tree;
mod recorder;
pub mod report;
mod sampler;

pub use background::Background;
pub use nvml::DriverVersions;
pub use recorder::Recorder;
pub use sampler::{DRIVER_RETRY, Sampler, Sources};

#[cfg(test)]
mod tests;
