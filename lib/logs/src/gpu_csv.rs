//! GPU sample logs: CSV, one row for each GPU and moment.

mod reader;
mod writer;

pub use reader::GpuCsvReader;
pub use writer::GpuCsvWriter;

/// The columns in order: the fields of [`GpuSample`](crate::GpuSample).
pub const HEADER: &str = "timestamp,boot_id,boot_s,index,uuid,name,gpu_util,mem_util,mem_used_mib,mem_total_mib,\
temperature_c,power_w,power_limit_w,sm_clock_mhz,throttle,processes,\
foreign_processes,mem_clock_mhz,energy_j,pcie_rx_mib_s,pcie_tx_mib_s,ecc_corrected,ecc_uncorrected,sm_active,tensor_active,\
dram_active,mem_temperature_c,temperature_limit_c,mem_temperature_limit_c,xid_errors,last_xid,host_cpu_util,host_mem_used_mib,host_mem_total_mib,host_disk_read_mib_s,host_disk_write_mib_s,\
host_disk_free_mib,interval_s\n";
