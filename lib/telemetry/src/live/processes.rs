//! The processes on GPUs, as the driver lists them and `/proc` names them.

use plmkit_logs::GpuSample;
use procfs::process::Process;
use serde::Serialize;

/// The longest command that is kept, in characters.
const MAX_COMMAND: usize = 1024;

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessStatus {
    /// The driver's number of the GPU.
    pub gpu: u32,
    /// The UUID of the GPU.
    pub gpu_uuid: Option<String>,
    pub pid: u32,
    /// Device memory that it holds.
    pub mem_used_mib: Option<u64>,
    /// Share of the time in which its kernels ran, in percent.
    pub gpu_util: Option<u32>,
    /// The command line; `None` of a process that a container hides.
    pub command: Option<String>,
}

/// Returns the processes of all samples of a moment.
pub fn processes(samples: &[GpuSample]) -> Vec<ProcessStatus> {
    let of_sample = |sample: &GpuSample| {
        let (gpu, gpu_uuid) = (sample.index?, sample.uuid.clone());
        let processes = sample.processes.clone()?.0.into_iter();
        Some(processes.map(move |process| ProcessStatus {
            gpu,
            gpu_uuid: gpu_uuid.clone(),
            pid: process.pid,
            mem_used_mib: process.mem_used_mib,
            gpu_util: process.gpu_util,
            command: command(process.pid),
        }))
    };
    samples.iter().filter_map(of_sample).flatten().collect()
}

/// Returns the command line of a process, or the name of a program that has none.
fn command(pid: u32) -> Option<String> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let words = process.cmdline().ok().filter(|words| !words.is_empty());
    let command = words.map(|words| words.join(" "));
    let command = command.or_else(|| Some(process.stat().ok()?.comm))?;
    Some(command.chars().take(MAX_COMMAND).collect())
}
