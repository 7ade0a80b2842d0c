//! Columns of samples as CSV.

use csv::Writer;
use plmkit_logs::gpu_csv::HEADER;
use plmkit_logs::{GpuSample, Metric};
use serde_json::Value;

/// Returns the names of all columns.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    HEADER.trim_end().split(',')
}

/// Returns a row for each sample, under a header with units. An unknown value is empty.
pub(super) fn csv(asked: &[String], samples: &[GpuSample]) -> Vec<u8> {
    const IN_MEMORY: &str = "rows of one length, in memory";
    let mut csv = Writer::from_writer(Vec::new());
    let header = asked.iter().map(|column| {
        let unit = Metric::of(column).map_or("", |metric| metric.unit);
        match unit {
            "" => column.clone(),
            unit => format!("{column} [{unit}]"),
        }
    });
    csv.write_record(header).expect(IN_MEMORY);
    for sample in samples {
        let row = serde_json::to_value(sample).expect("numbers and texts");
        let chosen = asked.iter().map(|column| match &row[column] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        });
        csv.write_record(chosen).expect(IN_MEMORY);
    }
    csv.into_inner().expect(IN_MEMORY)
}
