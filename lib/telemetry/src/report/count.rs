//! Samples of GPUs and of the host beside them.

use super::gpus::GpuCount;
use super::host::HostCount;
use super::recordings::Place;
use crate::GpuSample;

/// A GPU is known by its lasting name; its number stands in where the driver gives none.
pub(super) type GpuKey = (Option<String>, Option<u32>);

/// Samples, by GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Rows.
    pub(super) samples: u64,
    pub(super) gpus: Vec<(GpuKey, GpuCount)>,
    pub(super) host: HostCount,
    /// The first and the last place of a sample, in seconds of all recordings.
    pub(super) span_s: Option<(f64, f64)>,
}

impl Count {
    /// Takes in a sample that lies at `place`; the position of its GPU, if it is of one.
    pub(super) fn add(&mut self, sample: &GpuSample, place: Place) -> Option<usize> {
        self.samples += 1;
        self.span(place.at_s, place.at_s);
        self.host.add(sample);
        if sample.index.is_none() && sample.uuid.is_none() {
            return None;
        }
        let is_of = |(key, _): &(GpuKey, GpuCount)| {
            key.0 == sample.uuid && (key.0.is_some() || key.1 == sample.index)
        };
        let position = self.gpus.iter().position(is_of).unwrap_or_else(|| {
            let number = sample.index.filter(|_| sample.uuid.is_none());
            self.gpu((sample.uuid.clone(), number))
        });
        self.gpus[position].1.add(sample, place.recording);
        Some(position)
    }

    /// Takes in what was seen at another time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.host.merge(&other.host);
        if let Some((from_s, to_s)) = other.span_s {
            self.span(from_s, to_s);
        }
        for (key, gpu) in &other.gpus {
            let known = self.position(key);
            let position = known.unwrap_or_else(|| self.gpu(key.clone()));
            self.gpus[position].1.merge(gpu);
        }
    }

    /// Rows of these GPUs.
    pub(super) fn samples_of(&self, uuids: &[String]) -> u64 {
        let gpus = uuids.iter().filter_map(|uuid| self.by_uuid(uuid));
        gpus.map(|gpu| gpu.samples).sum()
    }

    pub(super) fn position(&self, key: &GpuKey) -> Option<usize> {
        self.gpus.iter().position(|(known, _)| known == key)
    }

    /// The GPU with a lasting name.
    pub(super) fn by_uuid(&self, uuid: &str) -> Option<&GpuCount> {
        let gpus = self.gpus.iter();
        gpus.map(|(_, gpu)| gpu)
            .find(|gpu| gpu.uuid.as_deref() == Some(uuid))
    }

    fn span(&mut self, from_s: f64, to_s: f64) {
        let (first_s, last_s) = self.span_s.unwrap_or((from_s, to_s));
        self.span_s = Some((first_s.min(from_s), last_s.max(to_s)));
    }

    /// Makes room for a GPU.
    fn gpu(&mut self, key: GpuKey) -> usize {
        self.gpus.push((key, GpuCount::default()));
        self.gpus.len() - 1
    }
}
