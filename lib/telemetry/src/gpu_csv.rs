//! GPU sample logs: CSV, one row for each GPU and moment.

mod reader;
mod writer;

pub use reader::GpuCsvReader;
pub use writer::GpuCsvWriter;

/// The columns, in their order: the fields of [`GpuSample`](crate::GpuSample).
pub const HEADER: &str = "timestamp,index,uuid,name,gpu_util,mem_util,mem_used_mib,mem_total_mib,\
temperature_c,power_w,power_limit_w,sm_clock_mhz,throttle,processes,\
host_cpu_util,host_mem_used_mib,host_mem_total_mib\n";
