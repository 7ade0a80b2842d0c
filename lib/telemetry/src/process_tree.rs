//! The recorded command and its descendants.

use std::collections::HashSet;

use procfs::process::Process;

use plmkit_logs::Processes;

/// The longest chain of parents that is followed. Process ids that are reused during the walk could form a cycle.
const MAX_GENERATIONS: u32 = 64;

/// A recorded command and its descendants.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    command: u32,
    /// Known descendants: a process that outlives its parent still belongs to the command.
    members: HashSet<u32>,
}

impl ProcessTree {
    pub(crate) fn new(command: u32) -> Self {
        Self {
            command,
            members: HashSet::new(),
        }
    }

    /// Counts the `processes` that are no descendants. Returns `None` if one of them is not visible: in a container, the
    /// driver may report process ids of the host.
    pub(crate) fn foreign(&mut self, processes: &Processes) -> Option<u32> {
        let mut foreign = 0;
        for process in &processes.0 {
            if self.members.contains(&process.pid) {
                continue;
            }
            if descends(process.pid, self.command)? {
                self.members.insert(process.pid);
            } else {
                foreign += 1;
            }
        }
        Some(foreign)
    }
}

/// Whether a process descends from `ancestor`, or is it. `None` if a process on the way is not visible.
fn descends(mut pid: u32, ancestor: u32) -> Option<bool> {
    for _ in 0..MAX_GENERATIONS {
        if pid == ancestor {
            return Some(true);
        }
        let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
        pid = u32::try_from(stat.ppid).ok()?;
        if pid <= 1 {
            break;
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};

    use super::*;
    use plmkit_logs::GpuProcess;

    #[test]
    fn descendants_belong_to_the_command_even_after_their_end() {
        let own = process::id();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let foreign = |tree: &mut ProcessTree, pids: &[u32]| {
            let process = |&pid| GpuProcess {
                pid,
                mem_used_mib: None,
                gpu_util: None,
            };
            tree.foreign(&Processes(pids.iter().map(process).collect()))
        };
        let both = [own, child.id()];
        let mut tree = ProcessTree::new(own);
        assert_eq!(foreign(&mut tree, &both), Some(0));
        assert_eq!(foreign(&mut ProcessTree::new(child.id()), &both), Some(1));
        assert_eq!(foreign(&mut tree, &[own, u32::MAX]), None, "not visible");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(foreign(&mut tree, &both), Some(0), "it was a child");
    }
}
