//! GPU sample logs: CSV, one row for each GPU and moment.

mod reader;
mod writer;

pub use crate::gpu_sample::HEADER;
pub use reader::{GpuCsvLines, GpuCsvReader};
pub use writer::GpuCsvWriter;
