//! The host's disks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use procfs::diskstats;
use rustix::fs::statvfs;

use super::MIB;
use plmkit_logs::GpuSample;

/// The kernel counts in these, whatever the disk's own are (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

/// Reads the disks. Rates are those between two readings: the first has none.
#[derive(Debug)]
pub(super) struct Disks {
    watched: Option<PathBuf>,
    previous: Option<(Instant, Sectors)>,
}

/// Read and written since boot, over all disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sectors {
    read: u64,
    written: u64,
}

impl Disks {
    /// Free space is that of the file system on which `watched` is.
    pub(super) fn new(watched: Option<&Path>) -> Self {
        Self {
            watched: watched.map(Path::to_owned),
            previous: None,
        }
    }

    pub(super) fn read(&mut self, sample: &mut GpuSample) {
        let now = Sectors::now().map(|sectors| (Instant::now(), sectors));
        if let (Some((time, now)), Some((before_time, before))) = (now, self.previous) {
            let seconds = (time - before_time).as_secs_f64();
            sample.host_disk_read_mib_s = mib_per_s(now.read, before.read, seconds);
            sample.host_disk_write_mib_s = mib_per_s(now.written, before.written, seconds);
        }
        self.previous = now;
        let watched = self.watched.as_ref().and_then(|path| statvfs(path).ok());
        sample.host_disk_free_mib = watched.map(|disk| disk.f_bavail * disk.f_frsize / MIB);
    }
}

impl Sectors {
    /// `None` where no disk is to be seen, as in some containers.
    fn now() -> Option<Self> {
        let disks = diskstats().ok()?;
        let physical = disks.iter().filter(|disk| is_physical(&disk.name));
        physical
            .map(|disk| Self {
                read: disk.sectors_read,
                written: disk.sectors_written,
            })
            .reduce(|sum, disk| Self {
                read: sum.read + disk.read,
                written: sum.written + disk.written,
            })
    }
}

/// Not a partition, nor a device made of others: their work would count twice.
fn is_physical(name: &str) -> bool {
    Path::new("/sys/block").join(name).join("device").exists()
}

/// To a tenth; `None` where no time has passed or a disk went away.
fn mib_per_s(now: u64, before: u64, seconds: f64) -> Option<f64> {
    let bytes = now.checked_sub(before)? * SECTOR;
    let rate = bytes as f64 / MIB as f64 / seconds;
    (seconds > 0.0).then(|| (rate * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_readings() {
        assert_eq!(mib_per_s(6144, 2048, 2.0), Some(1.0));
        assert_eq!(mib_per_s(2048, 2048, 1.0), Some(0.0));
        assert_eq!(mib_per_s(0, 2048, 1.0), None, "a disk went away");
        assert_eq!(mib_per_s(2048, 0, 0.0), None, "no time has passed");
    }

    #[test]
    fn what_is_left_is_that_of_the_path_and_of_no_path_nothing() {
        let left = |path: Option<&str>| {
            let mut sample = GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap());
            Disks::new(path.map(Path::new)).read(&mut sample);
            assert_eq!(sample.host_disk_read_mib_s, None, "a first reading");
            sample.host_disk_free_mib
        };
        assert!(left(Some("/")).is_some());
        assert_eq!(left(Some("/proc")), Some(0));
        assert_eq!(left(Some("/nonexistent")), None);
        assert_eq!(left(None), None);
    }
}
