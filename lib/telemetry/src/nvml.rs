//! GPUs through NVML, NVIDIA's management library. NVML is loaded at run time: neither the build nor the start needs a
//! driver.

mod activity;
mod gpu;
mod health;
mod processes;

use std::ffi::OsStr;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use plmkit_contract::cause;
use plmkit_logs::GpuSample;
use serde::Serialize;
use tracing::dispatcher::{self, Dispatch};

use gpu::{Gpu, Health, Reading, Reported};

/// The name that the driver installs. The name without `.1` exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// How long a sample waits for the driver. A reading takes a few milliseconds for each GPU.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the start waits for the driver, which takes seconds if nothing keeps the GPUs awake.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The first pause before a driver that went away is opened again. Later pauses are twice as long each.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The versions of the driver that was opened last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriverVersions {
    /// The version of the driver: `580.65.06`.
    pub driver_version: Option<String>,
    /// The newest version of CUDA that it supports: `13.0`.
    pub cuda_version: Option<String>,
}

/// What the thread that talks to the driver tells.
enum Answer {
    /// It has opened the driver, whose GPUs have these names; or why it ended without one.
    Opened(Result<(Vec<GpuSample>, DriverVersions), String>),
    /// The readings of all GPUs.
    Read(Vec<Reading>),
}

/// A thread that opens the driver and reads the GPUs. It may hang: there is never a second question, nor a second thread.
struct NvmlThread {
    questions: Sender<GpuSample>,
    answers: Receiver<Answer>,
}

/// The driver, and the search for it while there is none.
pub(crate) struct Driver {
    library: Option<PathBuf>,
    /// The longest time between two searches.
    longest_retry: Duration,
    /// The pause before the next search for a driver that went away; `None` while it answers.
    backoff: Option<Duration>,
    last_search: Instant,
    thread: Option<NvmlThread>,
    is_open: bool,
    /// Whether a question has no answer yet.
    is_asked: bool,
    /// Rows with the names that were read last, and no values. A driver that went away leaves them.
    names: Vec<GpuSample>,
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
            thread: None,
            is_open: false,
            is_asked: false,
            names: Vec::new(),
            versions: DriverVersions::default(),
            reported: Reported::default(),
        };
        if let Err(reason) = driver.search(START_TIMEOUT) {
            tracing::info!("no GPU found; recording the host only: {reason}");
        }
        driver
    }

    /// Reads all GPUs. The time and the host's columns are copied from `moment`. If the driver does not answer, rows have the names
    /// alone. Returns nothing if no GPU was ever seen.
    pub(crate) fn read(&mut self, moment: &GpuSample) -> Vec<GpuSample> {
        if !self.is_open {
            self.search_again();
        }
        let readings = self.ask(moment).unwrap_or_else(|| {
            let named = self.names.iter().map(|gpu| with_names(moment, gpu));
            vec![(named.collect(), Health::Silent)]
        });
        let (rows, health): (Vec<_>, Vec<_>) = readings.into_iter().unzip();
        if self.is_open {
            self.judge(&health);
        }
        rows.concat()
    }

    /// Returns the readings of this moment; `None` if the driver is not there or does not answer in time. The answer to an earlier
    /// question is not waited for.
    fn ask(&mut self, moment: &GpuSample) -> Option<Vec<Reading>> {
        let thread = self.thread.as_ref().filter(|_| self.is_open)?;
        if self.is_asked {
            thread.answers.try_recv().ok()?;
            tracing::info!("the driver answers again");
        }
        self.is_asked = thread.questions.send(moment.clone()).is_ok();
        match thread.answers.recv_timeout(READ_TIMEOUT) {
            Ok(Answer::Read(readings)) => {
                self.is_asked = false;
                let rows = readings.iter().flat_map(|(rows, _)| rows);
                let none = GpuSample::default();
                self.names = rows.map(|row| with_names(&none, row)).collect();
                Some(readings)
            }
            Ok(Answer::Opened(_)) | Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("the driver does not answer; its values are missing until it does");
                None
            }
        }
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
            // The thread ends, and shuts NVML down.
            (self.thread, self.is_open) = (None, false);
        }
    }

    fn longer_backoff(&self) -> Duration {
        let longer = self.backoff.map_or(FIRST_RETRY, |pause| pause * 2);
        longer.min(self.longest_retry)
    }

    /// Searches for the driver if it is time.
    fn search_again(&mut self) {
        let pause = self.backoff.unwrap_or(self.longest_retry);
        let timeout = match self.thread {
            Some(_) => Duration::ZERO,
            None if self.last_search.elapsed() < pause => return,
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
        let (library, reported) = (self.library.clone(), self.reported.clone());
        let thread = self.thread.take();
        let thread = thread.unwrap_or_else(|| start(library, reported));
        match thread.answers.recv_timeout(timeout) {
            Ok(Answer::Opened(opened)) => {
                (self.names, self.versions) = opened?;
                (self.thread, self.is_open) = (Some(thread), true);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => {
                self.thread = Some(thread);
                Err("the driver does not answer".to_owned())
            }
            _ => Err("NVML failed".to_owned()),
        }
    }
}

impl Drop for Driver {
    /// Leaves the thread to the end of the process, which could come while it shuts NVML down.
    fn drop(&mut self) {
        mem::forget(self.thread.take());
    }
}

/// Starts a thread whose messages go where those of this thread go: `top` hides them.
fn start(library: Option<PathBuf>, reported: Reported) -> NvmlThread {
    let (questions, asked) = mpsc::channel();
    let (sender, answers) = mpsc::channel();
    let dispatch = dispatcher::get_default(Dispatch::clone);
    let work = move || {
        dispatcher::with_default(&dispatch, || {
            serve(library.as_deref(), &reported, &asked, &sender);
        });
    };
    // Without a thread the sender is dropped, and the receiver says so.
    let _ = thread::Builder::new().name("nvml".to_owned()).spawn(work);
    NvmlThread { questions, answers }
}

/// Opens NVML, and answers questions until nobody asks any more.
fn serve(
    library: Option<&Path>,
    reported: &Reported,
    asked: &Receiver<GpuSample>,
    answers: &Sender<Answer>,
) {
    let (nvml, count, versions) = match open(library) {
        Ok(opened) => opened,
        Err(reason) => {
            let _ = answers.send(Answer::Opened(Err(reason)));
            return;
        }
    };
    let gpus = (0..count).map(|index| Gpu::open(&nvml, index, reported.clone()));
    let mut gpus: Vec<Gpu> = gpus.collect();
    let names = gpus.iter().map(|gpu| gpu.names.clone()).collect();
    // Fails if nobody waits any more.
    let _ = answers.send(Answer::Opened(Ok((names, versions))));
    for moment in asked {
        let readings = gpus.iter_mut().map(|gpu| gpu.read(&moment));
        let _ = answers.send(Answer::Read(readings.collect()));
    }
}

/// Loads NVML, and counts the GPUs, at least one. The error is the reason in a few words.
fn open(library: Option<&Path>) -> Result<(Nvml, u32, DriverVersions), String> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = Nvml::builder().lib_path(path).init();
    let nvml = nvml.map_err(|error| cause(&error))?;
    let count = nvml.device_count().map_err(|error| cause(&error))?;
    if count == 0 {
        return Err("the driver sees no GPU".to_owned());
    }
    let cuda = nvml.sys_cuda_driver_version().ok();
    let versions = DriverVersions {
        driver_version: nvml.sys_driver_version().ok(),
        cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
    };
    Ok((nvml, count, versions))
}

/// Returns `moment` with the names of a GPU.
fn with_names(moment: &GpuSample, gpu: &GpuSample) -> GpuSample {
    GpuSample {
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        ..moment.clone()
    }
}
