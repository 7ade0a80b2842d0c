//! Reads GPU samples.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::Cursor;

use csv::{Reader, ReaderBuilder, StringRecord, Terminator};
use plmkit_kit::Quoted;

use crate::gpu_sample::ReadColumn;
use crate::{GpuSample, LineParser, LogReader, METRICS, Timestamp};

/// The samples of a log. Columns are found by name: a newer program may write more columns, an older one fewer.
///
/// ```
/// use plmkit_logs::gpu_csv::GpuCsvReader;
///
/// let log = "timestamp,index,gpu_util,mem_used_mib\n\
///            2026-01-31T12:00:00.000Z,0,97,\n\
///            2026-01-31T12:00:01.000Z,0,9";
/// let mut reader = GpuCsvReader::new(log.as_bytes(), "gpu.csv");
/// let sample = reader.next().unwrap()?;
/// assert_eq!((sample.gpu_util, sample.mem_used_mib), (Some(97), None));
/// assert!(reader.next().is_none());
/// assert!(reader.is_torn());
/// # Ok::<(), plmkit_store::StoreError>(())
/// ```
pub type GpuCsvReader<R> = LogReader<R, GpuCsvLines>;

/// Parses the lines of a sample log, the first of which is the header.
#[derive(Debug)]
pub struct GpuCsvLines {
    header: StringRecord,
    /// What reads the columns of the header; `None` for one of a newer or an older program.
    columns: Vec<Option<ReadColumn>>,
    row: StringRecord,
    /// Splits all lines, one at a time.
    csv: Reader<Cursor<Vec<u8>>>,
}

impl Default for GpuCsvLines {
    fn default() -> Self {
        let mut csv = ReaderBuilder::new();
        csv.has_headers(false).flexible(true);
        csv.terminator(Terminator::Any(b'\n'));
        Self {
            header: StringRecord::new(),
            columns: Vec::new(),
            row: StringRecord::new(),
            csv: csv.from_reader(Cursor::default()),
        }
    }
}

impl LineParser for GpuCsvLines {
    type Item = GpuSample;

    fn parse(&mut self, line: &[u8]) -> Result<Option<GpuSample>, String> {
        *self.csv.get_mut() = Cursor::new([line, b"\n"].concat());
        let read = self.csv.read_record(&mut self.row);
        read.map_err(|_| "not UTF-8".to_owned())?;
        if self.columns.is_empty() {
            self.columns = columns(&self.row)?;
            self.header = self.row.clone();
        }
        // A second header: two recorders may have found a new log empty.
        if self.row == self.header {
            return Ok(None);
        }
        self.sample().map(Some)
    }

    fn time(sample: &GpuSample) -> Option<Timestamp> {
        Some(sample.timestamp)
    }
}

impl GpuCsvLines {
    /// Parses the row. The error has no file and line.
    fn sample(&self) -> Result<GpuSample, String> {
        let (header, row) = (&self.header, &self.row);
        if row.len() != header.len() {
            let (expected, found) = (header.len(), row.len());
            let torn = [": is the header torn?", ""][usize::from(found < expected)];
            return Err(format!(
                "wrong number of columns; expected {expected}, found {found}{torn}"
            ));
        }
        let mut sample = GpuSample::default();
        for (place, (read, value)) in self.columns.iter().zip(row).enumerate() {
            let read = read.map_or(Ok(()), |read| read(&mut sample, value));
            read.map_err(|expected| wrong(&header[place], expected, Quoted(value)))?;
        }
        check(&sample)?;
        Ok(sample)
    }
}

/// Returns what reads the columns of a header.
fn columns(header: &StringRecord) -> Result<Vec<Option<ReadColumn>>, String> {
    let names: HashSet<&str> = header.iter().collect();
    match names.contains("timestamp") {
        false => Err("not a GPU sample log: it has no 'timestamp' column".to_owned()),
        _ if names.len() < header.len() => Err("two columns have one name".to_owned()),
        true => Ok(header.iter().map(GpuSample::column).collect()),
    }
}

fn wrong(column: &str, expected: &str, found: impl Display) -> String {
    format!("column '{column}': expected {expected}, found {found}")
}

/// More than any machine has of anything. It keeps sums over a log finite.
const MAX_AMOUNT: f64 = 1e15;

/// Refuses impossible values.
fn check(sample: &GpuSample) -> Result<(), String> {
    let metrics = METRICS.iter().map(|metric| {
        let value = (metric.value)(sample);
        (metric.column, value, metric.unit == "%")
    });
    let times = [("boot_s", sample.boot_s), ("interval_s", sample.interval_s)];
    let times = times.map(|(column, value)| (column, value, false));
    for (column, value, is_percent) in metrics.chain(times) {
        let (most, expected) = if is_percent {
            (100.0, "0 to 100")
        } else {
            (MAX_AMOUNT, "a number from 0 on")
        };
        if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
            return Err(wrong(column, expected, value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plmkit_kit::{Exit, Failure};

    use super::*;
    use crate::gpu_csv::HEADER;
    use plmkit_store::StoreError;

    fn samples(log: &str) -> Result<Vec<GpuSample>, StoreError> {
        GpuCsvReader::new(log.as_bytes(), "gpu.csv").collect()
    }

    #[test]
    fn a_log_without_rows_has_no_samples_and_a_repeated_header_is_no_row() {
        let row = "2026-01-31T12:00:00Z,7\n";
        let twice = format!("timestamp,gpu_util\n{row}timestamp,gpu_util\n{row}");
        for (log, count) in [("", 0), (HEADER, 0), (&HEADER[..20], 0), (&twice, 2)] {
            assert_eq!(samples(log).unwrap().len(), count, "{log}");
        }
    }

    #[test]
    fn a_line_that_ends_in_quotes_is_an_error() {
        for line in [
            "a,b\n",
            "a,\"b, c\",d\n",
            "\"a\n",
            "a,\"b\"\"\n",
            "ab\"c,\"d\n",
        ] {
            let log = format!("timestamp,name\n{line}2026-01-31T12:00:00Z,x\n");
            let error = samples(&log).unwrap_err().to_string();
            assert!(error.starts_with("gpu.csv: line 2: "), "{error}");
        }
    }

    #[test]
    fn a_bad_value_is_named_by_line_and_column() {
        let no_time = |time: &str| {
            format!(
                "column 'timestamp': expected a time as 2026-01-31T12:00:00.000Z, found '{time}'"
            )
        };
        let time = "2026-01-31T12:00:00Z";
        for (row, expected) in [
            (
                format!("{time},high,,"),
                "column 'gpu_util': expected a number as record writes it, found 'high'".to_owned(),
            ),
            (
                format!("{time},1.5,,"),
                "column 'gpu_util': expected a number as record writes it, found '1.5'".to_owned(),
            ),
            ("yesterday,1,,".to_owned(), no_time("yesterday")),
            ("2026-01-31,1,,".to_owned(), no_time("2026-01-31")),
            (",1,,".to_owned(), no_time("")),
            (
                format!("{time},101,,"),
                "column 'gpu_util': expected 0 to 100, found 101".to_owned(),
            ),
            (
                format!("{time},1,NaN,"),
                "column 'power_w': expected a number from 0 on, found NaN".to_owned(),
            ),
            (
                // As an earlier version wrote it.
                format!("{time},1,,1048:4768:100"),
                "column 'processes': expected a list of JSON as [{\"pid\":4711,\"mem_used_mib\":5120,\"gpu_util\":88}], \
                 found '1048:4768:100'"
                    .to_owned(),
            ),
            (
                time.to_owned(),
                "wrong number of columns; expected 4, found 1".to_owned(),
            ),
        ] {
            let log = format!("timestamp,gpu_util,power_w,processes\n{time},1,,\n{row}\n");
            let error = samples(&log).unwrap_err();
            assert_eq!(error.exit(), Exit::Data);
            let expected = format!("gpu.csv: line 3: {expected}");
            assert!(
                error.to_string().starts_with(&expected),
                "{error}: {expected}"
            );
        }
        for (log, expected) in [
            (">P1\nMKV\n", "line 1: not a GPU sample log"),
            (
                "timestamp,power_w,power_w\n",
                "line 1: two columns have one name",
            ),
        ] {
            let error = samples(log).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
