//! Writing GPU samples.

use std::path::Path;

use super::HEADER;
use crate::append::{AppendLog, LogKind};
use crate::{GpuSample, LogError};

const KIND: LogKind = LogKind {
    name: "a GPU sample log",
    magic: HEADER.as_bytes(),
    one_writer: true,
};

/// Appends samples to a log; each call hands whole lines to the system.
///
/// What is recorded must not suffer from its log: the first error is returned, for the caller to warn; after it
/// the writer is closed, drops what it is given, and returns `Ok`.
pub struct GpuCsvWriter {
    log: AppendLog,
}

impl GpuCsvWriter {
    /// Opens the log at `path`, or makes an empty one. Cuts off a torn last line that a killed writer left. One that another
    /// process is writing is [busy](plmkit_store::StoreError::Busy).
    pub fn append(path: &Path) -> Result<Self, LogError> {
        Ok(Self {
            log: AppendLog::open(path, &KIND)?,
        })
    }

    /// Whether nothing was written to the log yet, now or earlier.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Adds the samples of one moment.
    pub fn write(&mut self, samples: &[GpuSample]) -> Result<(), LogError> {
        if self.log.is_empty() {
            self.log.push(HEADER.as_bytes());
        }
        self.log.push(&rows(samples));
        self.log.flush()
    }
}

fn rows(samples: &[GpuSample]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    for sample in samples {
        // A flat struct always serialises, and memory takes every byte.
        let _ = writer.serialize(sample);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn the_header_names_the_fields_in_their_order() {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(GpuSample::at(Timestamp::now())).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(text.split_inclusive('\n').next(), Some(HEADER));
    }

    #[test]
    fn a_value_that_is_not_known_is_empty() {
        let mut sample = GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap());
        sample.host_cpu_util = Some(12.5);
        let text = String::from_utf8(rows(&[sample])).unwrap();
        assert_eq!(
            text,
            "2026-01-31T12:00:00.000Z,,,,,,,,,,,,,,,,,,,,,,,,,,12.5,,,,,\n"
        );
    }
}
