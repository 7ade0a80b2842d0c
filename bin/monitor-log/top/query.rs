//! Columns of samples as CSV.

use csv::{ReaderBuilder, Writer};
use plmkit_logs::gpu_csv::{HEADER, rows};
use plmkit_logs::{GpuSample, Metric};

/// Returns the names of all columns.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    HEADER.trim_end().split(',')
}

/// Returns a row for each sample, under a header with units if `with_header`. An unknown value is empty.
pub(super) fn csv(asked: &[String], samples: &[GpuSample], with_header: bool) -> Vec<u8> {
    const IN_MEMORY: &str = "rows of one length, in memory";
    let mut csv = Writer::from_writer(Vec::new());
    if with_header {
        let header = asked.iter().map(|column| {
            let unit = Metric::of(column).map_or("", |metric| metric.unit.symbol);
            match unit {
                "" => column.clone(),
                unit => format!("{column} [{unit}]"),
            }
        });
        csv.write_record(header).expect(IN_MEMORY);
    }
    let places = asked
        .iter()
        .filter_map(|asked| columns().position(|column| column == asked));
    let places: Vec<usize> = places.collect();
    let all = rows(samples);
    let mut all = ReaderBuilder::new().has_headers(false).from_reader(&*all);
    for row in all.records() {
        let row = row.expect(IN_MEMORY);
        let chosen = places.iter().map(|&place| &row[place]);
        csv.write_record(chosen).expect(IN_MEMORY);
    }
    csv.into_inner().expect(IN_MEMORY)
}
