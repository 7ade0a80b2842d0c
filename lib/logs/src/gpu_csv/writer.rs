//! Writes GPU samples.

use std::path::Path;

use plmkit_store::StoreError;

use super::HEADER;
use crate::GpuSample;
use crate::append::AppendLog;

/// Appends samples to a log. Each call writes complete lines.
///
/// The recorded command must not suffer from its log. An error loses the samples of its moment. A regular file takes later
/// samples, as a full disk may have space again. Any other file is closed: later samples are dropped, and the result is
/// `Ok`.
pub struct GpuCsvWriter(AppendLog);

impl GpuCsvWriter {
    /// Opens or creates the log at `path`. Cuts off a torn last line of a killed writer. A log that another process writes is
    /// [busy](plmkit_store::StoreError::Busy).
    pub fn append(path: &Path) -> Result<Self, StoreError> {
        let name = "a GPU sample log with the columns of this version";
        AppendLog::open(path, name, HEADER.as_bytes(), true).map(Self)
    }

    /// Whether later samples can still be written.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Adds the samples of one moment.
    pub fn write(&mut self, samples: &[GpuSample]) -> Result<(), StoreError> {
        let header = if self.0.is_empty() { HEADER } else { "" };
        self.0.write(&[header.as_bytes(), &rows(samples)].concat())
    }
}

/// Returns the rows of samples.
fn rows(samples: &[GpuSample]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    for sample in samples {
        // A flat struct always serialises, and writing to memory does not fail.
        let _ = writer.serialize(sample);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_fields_in_order_and_unknown_values_are_empty() {
        let mut sample = GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap());
        sample.last_xid = Some(79);
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(&sample).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        let row = format!("2026-01-31T12:00:00.000Z{}79\n", ",".repeat(25));
        assert_eq!(text, format!("{HEADER}{row}"));
        assert_eq!(rows(&[sample]), row.as_bytes());
    }
}
