//! A thread for each GPU: one that hangs costs its own rows. Eight threads cost 0.2 ms of CPU time a sample. GPUs whose
//! driver counts for 40 ms are read at the same time.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use nvml_wrapper::Nvml;
use plmkit_logs::GpuSample;

use super::gpu::{Gpu, Health, Reading, Reported};
use super::spawn;

pub(super) struct GpuThread {
    index: u32,
    nvml: Weak<Nvml>,
    /// `None` once the thread was told to end.
    questions: Option<Sender<GpuSample>>,
    answers: Receiver<Reading>,
    /// A question without an answer. There is never a second one, so abandoned calls do not pile up.
    is_asked: bool,
    /// Whether the question is of this moment.
    is_fresh: bool,
    /// The names that were read when the GPU was opened. Its first reading may hang.
    opened: Arc<OnceLock<GpuSample>>,
    /// Rows with the names that were read last, and no values.
    names: Vec<GpuSample>,
}

impl GpuThread {
    pub(super) fn start(nvml: Arc<Nvml>, index: u32, reported: Reported) -> io::Result<Self> {
        let (questions, asked) = mpsc::channel::<GpuSample>();
        let (sender, answers) = mpsc::channel();
        let held = Arc::downgrade(&nvml);
        let opened = Arc::new(OnceLock::new());
        let names = Arc::clone(&opened);
        let work = move || {
            let mut gpu = Gpu::open(&nvml, index, reported);
            let _ = names.set(gpu.names.clone());
            for moment in asked {
                // Fails if nobody waits any more.
                let _ = sender.send(gpu.read(&moment));
            }
        };
        spawn(format!("gpu-{index}"), work)?;
        Ok(Self {
            index,
            nvml: held,
            questions: Some(questions),
            answers,
            is_asked: false,
            is_fresh: false,
            opened,
            names: vec![GpuSample {
                index: Some(index),
                ..GpuSample::default()
            }],
        })
    }

    /// Asks for a reading, unless the answer to an earlier question is still missing.
    pub(super) fn ask(&mut self, moment: &GpuSample) {
        if self.is_asked
            && let Ok((rows, _)) = self.answers.try_recv()
        {
            tracing::info!("gpu {}: answers again", self.index);
            self.is_asked = false;
            self.keep_names(&rows);
        }
        self.is_fresh = !self.is_asked;
        if let Some(questions) = self.questions.as_ref().filter(|_| self.is_fresh) {
            self.is_asked = questions.send(moment.clone()).is_ok();
        }
    }

    /// Returns the reading if it comes before `end`, else rows with nothing but names. A question of an earlier moment is not
    /// waited for.
    pub(super) fn answer(&mut self, moment: &GpuSample, end: Instant) -> Reading {
        if self.is_asked && self.is_fresh {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((rows, health)) => {
                    self.is_asked = false;
                    self.keep_names(&rows);
                    return (rows, health);
                }
                Err(RecvTimeoutError::Timeout) => tracing::warn!(
                    "gpu {}: does not answer; its values are missing until it does",
                    self.index
                ),
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        if let Some(opened) = self.opened.get()
            && self.names.iter().all(|names| names.uuid.is_none())
        {
            self.names = vec![opened.clone()];
        }
        let rows = self.names.iter().map(|names| with_names(moment, names));
        (rows.collect(), Health::Silent)
    }

    /// Tells the thread to end, and keeps the names. A thread that hangs is abandoned.
    pub(super) fn end(&mut self) {
        (self.questions, self.is_asked) = (None, false);
    }

    /// Whether this or another thread has not ended yet.
    pub(super) fn holds_nvml(&self) -> bool {
        self.nvml.strong_count() > 0
    }

    fn keep_names(&mut self, rows: &[GpuSample]) {
        let same = |(row, names): (&GpuSample, &GpuSample)| row.uuid == names.uuid;
        if rows.len() != self.names.len() || !rows.iter().zip(&self.names).all(same) {
            let none = GpuSample::default();
            self.names = rows.iter().map(|row| with_names(&none, row)).collect();
        }
    }
}

/// Returns `moment` with the names of a GPU.
pub(super) fn with_names(moment: &GpuSample, gpu: &GpuSample) -> GpuSample {
    GpuSample {
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        ..moment.clone()
    }
}
