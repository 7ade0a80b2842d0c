//! Samples of all GPUs through NVML, NVIDIA's management library. NVML is loaded at run time: neither the build nor
//! the start needs a driver.

mod gpu;
mod processes;
mod xid;

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use plmkit_kit::cause;
use plmkit_logs::{GpuSample, Timestamp, boot_id, boot_seconds};
use serde::Serialize;
use tracing::dispatcher::{self, Dispatch};

use gpu::{Gpu, Reported};

/// The name that the driver installs. The name without `.1` exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// How long a sample waits for the driver. A reading takes a few milliseconds for each GPU.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the start waits for the driver, which takes seconds if nothing keeps the GPUs awake.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two searches for a driver that is missing or went away: a service may start before the driver.
const RETRY: Duration = Duration::from_secs(5);

/// The versions of the driver that was opened last.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DriverVersions {
    /// The version of the driver: `580.65.06`.
    pub driver_version: Option<String>,
    /// The newest version of CUDA that it supports: `13.0`.
    pub cuda_version: Option<String>,
}

/// Rows: those of a moment; those of a driver that was just opened, with the names alone; none without a driver.
type Answer = (Vec<GpuSample>, DriverVersions);

/// Takes samples: a row for each GPU and MIG instance.
///
/// The driver is behind a thread that may hang: there is never a second question, nor a second thread.
pub struct Sampler {
    boot_id: Option<String>,
    /// Never dropped: the thread would shut NVML down while the process ends.
    questions: ManuallyDrop<Sender<GpuSample>>,
    answers: Receiver<Answer>,
    /// Whether a question has no answer yet.
    is_asked: bool,
    /// Rows with the names that were read last, and no values. A driver that went away leaves them.
    names: Vec<GpuSample>,
    /// The versions of the driver that gave them.
    pub versions: DriverVersions,
}

impl Sampler {
    /// Loads NVML, from `library` or the installed one. Logs why there is no GPU. A driver that is not there is looked for again.
    pub fn open(library: Option<&Path>) -> Self {
        let (questions, asked) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let library = library.map(Path::to_owned);
        // Messages go where those of this thread go: `top` hides them.
        let dispatch = dispatcher::get_default(Dispatch::clone);
        let work = move || {
            dispatcher::with_default(&dispatch, || {
                search(library.as_deref(), &asked, &sender);
            });
        };
        // Without a thread the sender is dropped, and the receiver says so.
        let _ = thread::Builder::new().name("nvml".to_owned()).spawn(work);
        let mut sampler = Self {
            boot_id: boot_id(),
            questions: ManuallyDrop::new(questions),
            answers,
            is_asked: true,
            names: Vec::new(),
            versions: DriverVersions::default(),
        };
        sampler.answer(START_TIMEOUT);
        sampler
    }

    /// Takes the samples of this moment; none if no GPU was ever seen. If the driver does not answer, rows have the names of the GPUs alone.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let mut moment = GpuSample::at(Timestamp::now());
        moment.boot_id.clone_from(&self.boot_id);
        moment.boot_s = Some(boot_seconds());
        match self.ask(&moment) {
            Some(rows) if rows.iter().any(GpuSample::has_values) => rows,
            _ => {
                let names = self.names.iter();
                names.map(|gpu| with_names(&moment, gpu)).collect()
            }
        }
    }

    /// Asks for the rows of a moment. The answer to an earlier question is not waited for.
    fn ask(&mut self, moment: &GpuSample) -> Option<Vec<GpuSample>> {
        if self.is_asked {
            self.answer(Duration::ZERO)?;
            tracing::info!("the driver answers again");
        }
        self.is_asked = self.questions.send(moment.clone()).is_ok();
        self.answer(READ_TIMEOUT)
    }

    fn answer(&mut self, timeout: Duration) -> Option<Vec<GpuSample>> {
        let answer = self.answers.recv_timeout(timeout);
        if answer.is_err() && !timeout.is_zero() {
            tracing::warn!("the driver does not answer; its values are missing until it does");
        }
        let (rows, versions) = answer.ok()?;
        self.is_asked = false;
        if !rows.is_empty() {
            let none = GpuSample::default();
            self.names = rows.iter().map(|row| with_names(&none, row)).collect();
            self.versions = versions;
        }
        Some(rows)
    }
}

/// Opens the driver, at the start and then with questions, and answers them, until nobody asks any more.
fn search(library: Option<&Path>, asked: &Receiver<GpuSample>, answers: &Sender<Answer>) {
    let reported = Reported::default();
    let (mut searched, mut found) = (None::<Instant>, "NVIDIA driver found; GPU sampling started");
    loop {
        if searched.is_none_or(|searched| searched.elapsed() >= RETRY) {
            let is_first = searched.replace(Instant::now()).is_none();
            match open(library) {
                Ok(nvml) => {
                    let found_later = (!is_first).then_some(found);
                    if serve(&nvml, &reported, found_later, asked, answers) {
                        tracing::warn!("the driver has gone: opening it again");
                        found = "the driver answers again";
                    }
                }
                Err(reason) if is_first => {
                    tracing::info!("GPUs are not sampled: {reason}");
                }
                Err(_) => {}
            }
        }
        // Fails if nobody waits any more.
        let _ = answers.send(Answer::default());
        if asked.recv().is_err() {
            return;
        }
    }
}

/// Answers questions until the driver goes. Logs `found` with the first values. Returns whether it gave values and went.
fn serve(
    nvml: &Nvml,
    reported: &Reported,
    mut found: Option<&str>,
    asked: &Receiver<GpuSample>,
    answers: &Sender<Answer>,
) -> bool {
    let cuda = nvml.sys_cuda_driver_version().ok();
    let versions = DriverVersions {
        driver_version: nvml.sys_driver_version().ok(),
        cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
    };
    let count = nvml.device_count().unwrap_or(0);
    let gpus = (0..count).map(|index| Gpu::open(nvml, index, reported));
    let mut gpus: Vec<Gpu> = gpus.collect();
    let names = gpus.iter().map(|gpu| gpu.names.clone()).collect();
    let _ = answers.send((names, versions.clone()));
    let mut gave_values = false;
    for moment in asked {
        let rows = gpus.iter_mut().flat_map(|gpu| gpu.read(&moment));
        let rows: Vec<GpuSample> = rows.collect();
        if !rows.iter().any(GpuSample::has_values) {
            return gave_values;
        }
        gave_values = true;
        if let Some(found) = found.take() {
            tracing::info!("{found}");
        }
        let _ = answers.send((rows, versions.clone()));
    }
    false
}

/// Loads NVML, if it has a GPU. The error is the reason in a few words.
fn open(library: Option<&Path>) -> Result<Nvml, String> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = Nvml::builder().lib_path(path).init();
    let nvml = nvml.map_err(|error| cause(&error))?;
    let count = nvml.device_count().map_err(|error| cause(&error))?;
    if count == 0 {
        return Err("the driver sees no GPU".to_owned());
    }
    Ok(nvml)
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
