//! Columns of samples as CSV.

use csv::WriterBuilder;

use plmkit_logs::{GpuSample, METRICS, Metric};

type Text = fn(&GpuSample) -> Option<String>;

/// The columns that are no numbers.
const TEXTS: [(&str, Text); 6] = [
    ("timestamp", |row| Some(row.timestamp.to_string())),
    ("index", |row| row.index.map(|index| index.to_string())),
    ("uuid", |row| row.uuid.clone()),
    ("name", |row| row.name.clone()),
    ("throttle", |row| {
        row.throttle.as_ref().map(ToString::to_string)
    }),
    ("processes", |row| {
        row.processes.as_ref().map(ToString::to_string)
    }),
];

/// Returns the names of all columns.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    let numbers = METRICS.iter().map(|metric| metric.column);
    TEXTS.iter().map(|(column, _)| *column).chain(numbers)
}

/// Returns a row for each sample, under a header with units if `with_header`. An unknown value is empty.
pub(super) fn csv(columns: &[String], rows: &[GpuSample], with_header: bool) -> Vec<u8> {
    let mut csv = WriterBuilder::new().from_writer(Vec::new());
    let header = columns.iter().map(|column| {
        let unit = Metric::of(column).map_or("", |metric| metric.unit.symbol());
        match unit {
            "" => column.clone(),
            unit => format!("{column} [{unit}]"),
        }
    });
    let header = with_header.then(|| header.collect());
    let values = rows.iter().map(|row| {
        let value = |column: &String| {
            let text = TEXTS.iter().find(|(name, _)| name == column);
            let number = || (Metric::of(column)?.value)(row).map(|value| value.to_string());
            text.map_or_else(number, |(_, text)| text(row))
                .unwrap_or_default()
        };
        columns.iter().map(value).collect::<Vec<_>>()
    });
    for record in header.into_iter().chain(values) {
        csv.write_record(record)
            .expect("rows of one length, in memory");
    }
    csv.into_inner().expect("in memory")
}
