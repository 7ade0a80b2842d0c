//! The command that is recorded, with the processes that descend from it.

use std::collections::HashSet;

use procfs::process::Process;

use plmkit_logs::Processes;

/// The longest chain of parents that is followed: process ids that are given anew while it is walked could make a circle.
const MAX_GENERATIONS: u32 = 64;

/// A command that is recorded, and its descendants.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    command: u32,
    /// Processes that descended from it when they were seen: one that outlives its parent is still its own.
    members: HashSet<u32>,
}

impl ProcessTree {
    pub(crate) fn new(command: u32) -> Self {
        Self {
            command,
            members: HashSet::new(),
        }
    }

    /// How many of `processes` are no descendants; `None` where that cannot be told of one of them: inside a container the
    /// driver's process ids are those of the host.
    pub(crate) fn foreign(&mut self, processes: &Processes) -> Option<u32> {
        processes.0.iter().try_fold(0, |count, process| {
            Some(count + u32::from(!self.has(process.pid)?))
        })
    }

    fn has(&mut self, pid: u32) -> Option<bool> {
        if self.members.contains(&pid) {
            return Some(true);
        }
        let member = descends(pid, self.command)?;
        if member {
            self.members.insert(pid);
        }
        Some(member)
    }
}

fn descends(pid: u32, ancestor: u32) -> Option<bool> {
    let mut at = pid;
    for _ in 0..MAX_GENERATIONS {
        if at == ancestor {
            return Some(true);
        }
        at = parent(at)?;
        if at <= 1 {
            return Some(false);
        }
    }
    Some(false)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
    u32::try_from(stat.ppid).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};

    use super::*;
    use plmkit_logs::GpuProcess;

    fn on_gpu(pids: &[u32]) -> Processes {
        let process = |&pid| GpuProcess {
            pid,
            mem_used_mib: None,
            gpu_util: None,
        };
        Processes(pids.iter().map(process).collect())
    }

    fn foreign(pids: &[u32], command: u32) -> Option<u32> {
        ProcessTree::new(command).foreign(&on_gpu(pids))
    }

    #[test]
    fn a_command_and_its_children_are_its_own_and_others_are_not() {
        let own = process::id();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let both = [own, child.id()];
        assert_eq!(foreign(&both, own), Some(0));
        assert_eq!(foreign(&both, child.id()), Some(1));
        assert_eq!(foreign(&[], own), Some(0));
        let mut tree = ProcessTree::new(own);
        assert_eq!(tree.foreign(&on_gpu(&both)), Some(0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree.foreign(&on_gpu(&both)), Some(0), "it was a child");
    }

    #[test]
    fn of_a_process_that_cannot_be_seen_nothing_is_known() {
        let own = process::id();
        assert_eq!(foreign(&[own, u32::MAX], own), None);
    }
}
