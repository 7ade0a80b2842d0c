//! The processes on GPUs, as `/proc` shows them.

use std::collections::HashMap;
use std::time::Instant;

use plmkit_logs::{GpuSample, boot_seconds, is_instance};
use procfs::process::{Process, Stat};
use serde::Serialize;
use uzers::{Users, UsersCache};

/// The longest command that is kept, in characters.
const MAX_COMMAND: usize = 1024;

/// A process on a GPU or a MIG instance. A container may hide it: its user and all that follows is unknown then.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessStatus {
    /// The driver's number of the GPU.
    pub gpu: u32,
    /// The UUID of the GPU, or of the MIG instance.
    pub gpu_uuid: Option<String>,
    /// The process id.
    pub pid: u32,
    /// Device memory that it holds.
    pub mem_used_mib: Option<u64>,
    /// Share of the time in which its kernels ran, in percent.
    pub gpu_util: Option<u32>,
    /// The name of its user, or the number of a user without a name.
    pub user: Option<String>,
    /// The name of the program.
    pub program: Option<String>,
    /// The command line.
    pub command: Option<String>,
    /// CPU time since the previous reading over the time since then, in percent of one CPU.
    pub cpu_util: Option<f64>,
    /// Seconds since it started.
    pub age_s: Option<f64>,
}

/// Reads processes. CPU time is measured between two readings: the first has none.
#[derive(Default)]
pub struct ProcessReader {
    /// CPU time in ticks, and when it was read, by process id and start.
    cpu: HashMap<(u32, u64), (u64, Instant)>,
    /// Names of users. Looking them up may ask a server.
    users: UsersCache,
}

impl ProcessReader {
    /// Reads the processes of all samples of a moment. A process on a MIG instance is on that alone, though the driver lists it
    /// for the GPU as well.
    pub fn read(&mut self, samples: &[GpuSample]) -> Vec<ProcessStatus> {
        let before = std::mem::take(&mut self.cpu);
        let mut all: Vec<ProcessStatus> = Vec::new();
        for sample in samples {
            let Some(gpu) = sample.index else { continue };
            for process in sample.processes.iter().flat_map(|list| &list.0) {
                if sample.is_instance() {
                    let is_same = |known: &ProcessStatus| {
                        let is_on_instance = known.gpu_uuid.as_deref().is_some_and(is_instance);
                        !is_on_instance && (known.gpu, known.pid) == (gpu, process.pid)
                    };
                    all.retain(|known| !is_same(known));
                }
                let mut status = ProcessStatus {
                    gpu,
                    gpu_uuid: sample.uuid.clone(),
                    pid: process.pid,
                    mem_used_mib: process.mem_used_mib,
                    gpu_util: process.gpu_util,
                    ..ProcessStatus::default()
                };
                if let Some((process, stat)) = find(status.pid) {
                    self.describe(&mut status, &process, &stat, &before);
                }
                all.push(status);
            }
        }
        all
    }

    fn describe(
        &mut self,
        status: &mut ProcessStatus,
        process: &Process,
        stat: &Stat,
        before: &HashMap<(u32, u64), (u64, Instant)>,
    ) {
        let ticks_per_s = procfs::ticks_per_second() as f64;
        status.age_s = Some((boot_seconds() - stat.starttime as f64 / ticks_per_s).max(0.0));
        status.user = process.uid().ok().map(|uid| {
            let user = self.users.get_user_by_uid(uid);
            let name = user.map(|user| user.name().to_string_lossy().into_owned());
            name.unwrap_or_else(|| uid.to_string())
        });
        status.program = Some(stat.comm.clone());
        let command = process.cmdline().unwrap_or_default().join(" ");
        let command = Some(command).filter(|command| !command.is_empty());
        let command = command.unwrap_or_else(|| stat.comm.clone());
        status.command = Some(command.chars().take(MAX_COMMAND).collect());
        let (key, used, now) = (
            (status.pid, stat.starttime),
            stat.utime + stat.stime,
            Instant::now(),
        );
        status.cpu_util = before.get(&key).and_then(|&(before, at)| {
            let cpu_s = used.saturating_sub(before) as f64 / ticks_per_s;
            let share = cpu_s / now.duration_since(at).as_secs_f64();
            share.is_finite().then_some(share * 100.0)
        });
        self.cpu.insert(key, (used, now));
    }
}

/// Finds a process in `/proc`.
fn find(pid: u32) -> Option<(Process, Stat)> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    Some((process, stat))
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use plmkit_logs::{GpuProcess, Processes};

    use super::*;

    fn sample(uuid: &str, pids: &[u32]) -> GpuSample {
        let processes = pids.iter().map(|&pid| GpuProcess {
            pid,
            ..GpuProcess::default()
        });
        GpuSample {
            index: Some(0),
            uuid: Some(uuid.to_owned()),
            processes: Some(Processes(processes.collect())),
            ..GpuSample::default()
        }
    }

    #[test]
    fn a_process_has_times() {
        let mut reader = ProcessReader::default();
        let samples = [sample("GPU-0", &[id()])];
        let own = reader.read(&samples).remove(0);
        assert!(own.age_s < Some(3600.0) && own.cpu_util.is_none());
        // At least 40 ms of CPU time: ticks are 10 ms.
        let start = Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 300 {
            sum = std::hint::black_box(sum + 1);
        }
        let cpu = reader.read(&samples)[0].cpu_util.unwrap();
        assert!(cpu > 10.0 && cpu < 3200.0, "{cpu}");
    }

    #[test]
    fn a_process_on_an_instance_is_not_on_its_gpu_as_well() {
        let samples = [
            sample("GPU-0", &[4_194_301, 4_194_302]),
            sample("MIG-1", &[4_194_302]),
        ];
        let found = ProcessReader::default().read(&samples);
        let found: Vec<_> = found
            .iter()
            .map(|process| (process.pid, process.gpu_uuid.as_deref().unwrap()))
            .collect();
        assert_eq!(found, [(4_194_301, "GPU-0"), (4_194_302, "MIG-1")]);
    }
}
