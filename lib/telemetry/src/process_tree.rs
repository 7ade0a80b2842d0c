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
    use super::*;

    #[test]
    fn with_an_invisible_process_the_number_of_foreign_ones_is_unknown() {
        let own = std::process::id();
        let mut tree = ProcessTree::new(own);
        for (pids, foreign) in [(vec![own], Some(0)), (vec![own, u32::MAX], None)] {
            let pids = pids
                .iter()
                .map(|pid| format!("{pid}::"))
                .collect::<Vec<_>>();
            let processes: Processes = pids.join(";").parse().unwrap();
            assert_eq!(tree.foreign(&processes), foreign);
        }
    }
}
