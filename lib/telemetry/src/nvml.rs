//! GPUs through NVML, NVIDIA's management library. NVML is loaded at run time: neither the build nor the start needs a
//! driver.

mod activity;
mod gpu;
mod gpu_thread;
mod health;
mod processes;

use std::ffi::OsStr;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use plmkit_contract::cause;
use plmkit_logs::GpuSample;
use serde::Serialize;
use tracing::dispatcher::{self, Dispatch};

use gpu::{Health, Reported};
use gpu_thread::GpuThread;

/// The name that the driver installs. The name without `.1` exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// How long a sample waits for a GPU. A reading takes less than 60 ms.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the start waits for the driver, which takes seconds if nothing keeps the GPUs awake.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The first pause before a driver that went away is opened again. Later pauses are twice as long each.
const FIRST_RETRY: Duration = Duration::from_secs(1);

type Opened = Result<(Vec<GpuThread>, DriverVersions), String>;

/// The versions of the driver that was opened last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriverVersions {
    /// The version of the driver: `580.65.06`.
    pub driver_version: Option<String>,
    /// The newest version of CUDA that it supports: `13.0`.
    pub cuda_version: Option<String>,
}

/// The driver, and the search for it while there is none.
pub(crate) struct Driver {
    library: Option<PathBuf>,
    /// The longest time between two searches.
    longest_retry: Duration,
    /// The pause before the next search for a driver that went away; `None` while it answers.
    backoff: Option<Duration>,
    last_search: Instant,
    opening: Option<mpsc::Receiver<Opened>>,
    /// Whether the GPUs are asked. A driver that went away leaves their names.
    is_open: bool,
    gpus: Vec<GpuThread>,
    pub(crate) versions: DriverVersions,
    reported: Reported,
}

impl Driver {
    /// Loads NVML, from `library` if given. Logs why there is no GPU.
    pub(crate) fn open(library: Option<&Path>, longest_retry: Duration) -> Self {
        let mut driver = Self {
            library: library.map(Path::to_owned),
            longest_retry,
            backoff: None,
            last_search: Instant::now(),
            opening: None,
            is_open: false,
            gpus: Vec::new(),
            versions: DriverVersions::default(),
            reported: Reported::default(),
        };
        if let Err(reason) = driver.search(START_TIMEOUT) {
            tracing::info!("no GPU found; recording the host only: {reason}");
        }
        driver
    }

    /// Reads all GPUs at once. The time and the host's columns are copied from `moment`. A GPU that does not answer has a
    /// row with its names. Returns nothing if no GPU was ever seen.
    pub(crate) fn read(&mut self, moment: &GpuSample) -> Vec<GpuSample> {
        if !self.is_open {
            self.search_again();
        }
        if self.is_open {
            self.gpus.iter_mut().for_each(|gpu| gpu.ask(moment));
        }
        let end = Instant::now() + READ_TIMEOUT;
        let readings = self.gpus.iter_mut().map(|gpu| gpu.answer(moment, end));
        let (rows, health): (Vec<_>, Vec<_>) = readings.unzip();
        if self.is_open {
            self.judge(&health);
        }
        rows.concat()
    }

    /// Closes a driver that has gone, or whose GPUs are all lost: only NVML that was shut down sees a restarted driver.
    fn judge(&mut self, health: &[Health]) {
        if health.contains(&Health::Well) && self.backoff.take().is_some() {
            tracing::info!("the driver answers again");
        }
        let is_lost = |health: &Health| *health == Health::Lost;
        if health.contains(&Health::DriverGone) || health.iter().all(is_lost) {
            if self.backoff.is_none() {
                tracing::warn!("the driver has gone: opening it again");
            }
            self.backoff = Some(self.longer_backoff());
            self.last_search = Instant::now();
            self.is_open = false;
            self.gpus.iter_mut().for_each(GpuThread::end);
        }
    }

    fn longer_backoff(&self) -> Duration {
        let longer = self.backoff.map_or(FIRST_RETRY, |pause| pause * 2);
        longer.min(self.longest_retry)
    }

    /// Searches for the driver if it is time.
    fn search_again(&mut self) {
        let timeout = match self.opening {
            Some(_) => Duration::ZERO,
            None if self.last_search.elapsed() < self.backoff.unwrap_or(self.longest_retry) => {
                return;
            }
            // A call that hangs keeps NVML from being shut down. Threads that ask the same again would pile up.
            None if self.gpus.iter().any(GpuThread::holds_nvml) => return,
            None => READ_TIMEOUT,
        };
        match (self.search(timeout), self.backoff) {
            (Ok(()), None) => tracing::info!("NVIDIA driver found; GPU sampling started"),
            (Err(_), Some(_)) => self.backoff = Some(self.longer_backoff()),
            _ => {}
        }
    }

    /// Opens the driver in a thread of its own, and waits for it up to `timeout`. The search goes on after that.
    fn search(&mut self, timeout: Duration) -> Result<(), String> {
        self.last_search = Instant::now();
        let opening = self.opening.take().unwrap_or_else(|| {
            let (sender, opened) = mpsc::channel();
            let (library, reported) = (self.library.clone(), self.reported.clone());
            // Without a thread the sender is dropped, and the receiver says so.
            let _ = spawn("nvml".to_owned(), move || {
                let _ = sender.send(open_gpus(library.as_deref(), &reported));
            });
            opened
        });
        match opening.recv_timeout(timeout) {
            Ok(opened) => {
                (self.gpus, self.versions) = opened?;
                self.is_open = true;
                Ok(())
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.opening = Some(opening);
                Err("the driver does not answer".to_owned())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("NVML failed".to_owned()),
        }
    }
}

impl Drop for Driver {
    /// Leaves the threads to the end of the process, which could come while one of them shuts NVML down.
    fn drop(&mut self) {
        self.gpus.drain(..).for_each(mem::forget);
    }
}

/// Starts a thread whose messages go where those of this thread go: `top` hides them.
fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let dispatch = dispatcher::get_default(Dispatch::clone);
    let work = move || dispatcher::with_default(&dispatch, work);
    thread::Builder::new().name(name).spawn(work).map(drop)
}

/// Loads NVML and starts a thread for each GPU, at least one. The error is the reason in a few words.
fn open_gpus(library: Option<&Path>, reported: &Reported) -> Opened {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = Nvml::builder()
        .lib_path(path)
        .init()
        .map_err(|error| cause(&error))?;
    let count = nvml.device_count().map_err(|error| cause(&error))?;
    if count == 0 {
        return Err("the driver sees no GPU".to_owned());
    }
    let cuda = nvml.sys_cuda_driver_version().ok();
    let versions = DriverVersions {
        driver_version: nvml.sys_driver_version().ok(),
        cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
    };
    // The last thread shuts NVML down.
    let nvml = Arc::new(nvml);
    let start = |index| GpuThread::start(Arc::clone(&nvml), index, reported.clone());
    let gpus: Result<_, _> = (0..count).map(start).collect();
    Ok((gpus.map_err(|error| cause(&error))?, versions))
}
