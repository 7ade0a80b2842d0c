//! The host's disks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use procfs::diskstats;
use rustix::fs::statvfs;

use super::{MIB, tenth};
use plmkit_logs::GpuSample;

/// The kernel's unit, whatever the sectors of the disk (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

/// Reads the disks. Rates are measured between two readings: the first has none.
#[derive(Debug)]
pub(super) struct Disks {
    /// A path on the file system whose free space is read.
    path: Option<PathBuf>,
    previous: Option<(Instant, [u64; 2])>,
}

impl Disks {
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(Path::to_owned),
            previous: None,
        }
    }

    pub(super) fn read(&mut self, sample: &mut GpuSample) {
        let now = sectors().map(|sectors| (Instant::now(), sectors));
        if let (Some((time, now)), Some((before_time, before))) = (now, self.previous) {
            let seconds = (time - before_time).as_secs_f64();
            sample.host_disk_read_mib_s = mib_per_s(now[0], before[0], seconds);
            sample.host_disk_write_mib_s = mib_per_s(now[1], before[1], seconds);
        }
        self.previous = now;
        let disk = self.path.as_ref().and_then(|path| statvfs(path).ok());
        sample.host_disk_free_mib = disk.map(|disk| disk.f_bavail * disk.f_frsize / MIB);
    }
}

/// Returns the sectors read and written since boot, over all disks; `None` if no disk is visible, as in some containers.
fn sectors() -> Option<[u64; 2]> {
    let disks = diskstats().ok()?;
    let physical = disks.iter().filter(|disk| is_physical(&disk.name));
    let counts = physical.map(|disk| [disk.sectors_read, disk.sectors_written]);
    counts.reduce(|sum, disk| [sum[0] + disk[0], sum[1] + disk[1]])
}

/// Whether a device is no partition and not made of other devices, whose work would count twice.
fn is_physical(name: &str) -> bool {
    Path::new("/sys/block").join(name).join("device").exists()
}

/// Returns the rate, to a tenth; `None` if no time has passed or a disk was removed.
fn mib_per_s(now: u64, before: u64, seconds: f64) -> Option<f64> {
    let bytes = now.checked_sub(before)? * SECTOR;
    let rate = bytes as f64 / MIB as f64 / seconds;
    (seconds > 0.0).then(|| tenth(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_readings() {
        assert_eq!(mib_per_s(6144, 2048, 2.0), Some(1.0));
        assert_eq!(mib_per_s(2048, 2048, 1.0), Some(0.0));
        assert_eq!(mib_per_s(0, 2048, 1.0), None, "a disk was removed");
        assert_eq!(mib_per_s(2048, 0, 0.0), None, "no time has passed");
    }

    #[test]
    fn free_space_is_that_of_the_path() {
        for (path, is_known) in [("/", true), ("/nonexistent", false)] {
            let mut sample = GpuSample::default();
            Disks::new(Some(Path::new(path))).read(&mut sample);
            assert_eq!(sample.host_disk_free_mib.is_some(), is_known, "{path}");
        }
    }
}
