//! Reads GPU samples.

use std::io::BufRead;
use std::path::PathBuf;

use csv::{ErrorKind, StringRecord};
use plmkit_contract::Quoted;

use crate::lines::{LineCount, LineRead};
use crate::{GpuSample, LogError, SkippedLines, Timestamp};

/// The samples of a log, in the order of the lines. Keeps one row in memory.
///
/// Columns are found by name: a newer program may write more columns, an older one fewer. A last line without a newline is
/// skipped, see [`GpuCsvReader::torn`], and so are malformed rows, see [`GpuCsvReader::skipped`]. If more than one row in a
/// hundred is malformed, the last item is an error about the first of them.
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
/// assert!(reader.torn());
/// # Ok::<(), plmkit_logs::LogError>(())
/// ```
pub struct GpuCsvReader<R> {
    rows: csv::Reader<LineRead<R>>,
    header: Option<StringRecord>,
    record: StringRecord,
    count: LineCount,
    path: PathBuf,
}

impl<R: BufRead> GpuCsvReader<R> {
    /// Reads a log from `source`; `path` names it in errors.
    pub fn new(source: R, path: impl Into<PathBuf>) -> Self {
        Self {
            rows: csv::Reader::from_reader(LineRead::new(source)),
            header: None,
            record: StringRecord::new(),
            count: LineCount::default(),
            path: path.into(),
        }
    }

    /// Whether a last line without a newline was left out. Known at the end.
    pub fn torn(&self) -> bool {
        self.rows.get_ref().lines().torn()
    }

    /// Returns the malformed rows that were left out so far.
    pub fn skipped(&self) -> Option<SkippedLines> {
        self.count.skipped(&self.path)
    }

    fn advance(&mut self) -> Result<Option<GpuSample>, LogError> {
        if self.header.is_none() {
            let header = self.rows.headers().cloned();
            let header = header.map_err(|error| self.csv_error(error))?;
            if !header.is_empty() && !header.iter().any(|column| column == "timestamp") {
                let reason = "not a GPU sample log: it has no 'timestamp' column";
                return Err(LogError::line(&self.path, 1, reason));
            }
            self.header = Some(header);
            self.count.add_header();
        }
        loop {
            let read = self.rows.read_record(&mut self.record);
            let sample = match read {
                Ok(false) => {
                    self.count.check(&self.path)?;
                    return Ok(None);
                }
                // A second header: two recorders may have found a new log empty.
                Ok(true) if self.header.as_ref() == Some(&self.record) => continue,
                Ok(true) => parse_row(self.header.as_ref(), &self.record),
                // An unreadable file, or a line without an end.
                Err(error) if error.is_io_error() => return Err(self.csv_error(error)),
                Err(error) => Err(csv_reason(error.kind())),
            };
            match sample {
                Ok(sample) => {
                    self.count.add_good();
                    return Ok(Some(sample));
                }
                Err(reason) => {
                    let line = self.rows.get_ref().lines().number();
                    self.count.add_bad(&self.path, line, reason)?;
                }
            }
        }
    }

    fn csv_error(&self, error: csv::Error) -> LogError {
        let line = self.rows.get_ref().lines().number();
        match error.into_kind() {
            ErrorKind::Io(source) => LogError::read(&self.path, line, source),
            other => LogError::line(&self.path, line, csv_reason(&other)),
        }
    }
}

fn csv_reason(error: &ErrorKind) -> String {
    match error {
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("wrong number of columns; expected {expected_len}, found {len}"),
        ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        other => format!("not CSV: {other:?}"),
    }
}

impl<R: BufRead> Iterator for GpuCsvReader<R> {
    type Item = Result<GpuSample, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// Parses a row of a CSV log or of a Parquet file. The error has no file and line.
pub(crate) fn parse_row(
    header: Option<&StringRecord>,
    row: &StringRecord,
) -> Result<GpuSample, String> {
    let sample = row
        .deserialize(header)
        .map_err(|error| value_error(&error, header, row))?;
    check(&sample)?;
    Ok(sample)
}

fn value_error(error: &csv::Error, header: Option<&StringRecord>, row: &StringRecord) -> String {
    let ErrorKind::Deserialize { err, .. } = error.kind() else {
        return error.to_string();
    };
    let column = err.field().and_then(|field| header?.get(field as usize));
    match column {
        Some(column) => format!("column '{column}': {}", err.kind()),
        // csv gives no column for an error of a custom type.
        None => match bad_time(header, row) {
            Some(found) => format!(
                "column 'timestamp': expected a time as 2026-01-31T12:00:00.000Z, found {}",
                Quoted(found)
            ),
            None => err.kind().to_string(),
        },
    }
}

/// Returns the timestamp of a row if it is malformed.
fn bad_time<'a>(header: Option<&StringRecord>, row: &'a StringRecord) -> Option<&'a str> {
    let place = header?.iter().position(|column| column == "timestamp")?;
    row.get(place)
        .filter(|text| text.parse::<Timestamp>().is_err())
}

/// Refuses impossible values.
fn check(sample: &GpuSample) -> Result<(), String> {
    for (column, value) in [
        ("gpu_util", sample.gpu_util.map(f64::from)),
        ("mem_util", sample.mem_util.map(f64::from)),
        ("sm_active", sample.sm_active),
        ("tensor_active", sample.tensor_active),
        ("dram_active", sample.dram_active),
        ("host_cpu_util", sample.host_cpu_util),
    ] {
        if let Some(value) = value.filter(|value| !(0.0..=100.0).contains(value)) {
            return Err(format!(
                "column '{column}': expected 0 to 100, found {value}"
            ));
        }
    }
    for (column, unit, value) in [
        ("power_w", "watts", sample.power_w),
        ("power_limit_w", "watts", sample.power_limit_w),
        ("energy_j", "joules", sample.energy_j),
        ("pcie_rx_mib_s", "MiB/s", sample.pcie_rx_mib_s),
        ("pcie_tx_mib_s", "MiB/s", sample.pcie_tx_mib_s),
        ("host_disk_read_mib_s", "MiB/s", sample.host_disk_read_mib_s),
        (
            "host_disk_write_mib_s",
            "MiB/s",
            sample.host_disk_write_mib_s,
        ),
        ("boot_s", "seconds", sample.boot_s),
        ("interval_s", "seconds", sample.interval_s),
    ] {
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
            return Err(format!("column '{column}': expected {unit}, found {value}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Exit, Failure};

    use super::*;
    use crate::gpu_csv::HEADER;

    fn samples(log: &str) -> Result<Vec<GpuSample>, LogError> {
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
    fn a_bad_value_is_named_by_line_and_column() {
        let no_time = |time: &str| {
            format!(
                "column 'timestamp': expected a time as 2026-01-31T12:00:00.000Z, found '{time}'"
            )
        };
        let time = "2026-01-31T12:00:00Z";
        for (row, expected) in [
            (format!("{time},high,,"), "column 'gpu_util': ".to_owned()),
            ("yesterday,1,,".to_owned(), no_time("yesterday")),
            ("2026-01-31,1,,".to_owned(), no_time("2026-01-31")),
            (",1,,".to_owned(), no_time("")),
            (
                format!("{time},101,,"),
                "column 'gpu_util': expected 0 to 100, found 101".to_owned(),
            ),
            (
                format!("{time},1,NaN,"),
                "column 'power_w': expected watts, found NaN".to_owned(),
            ),
            (
                format!("{time},1,,x"),
                "expected PID:MIB:PERCENT, found 'x'".to_owned(),
            ),
            (
                time.to_owned(),
                "wrong number of columns; expected 4, found 1".to_owned(),
            ),
        ] {
            // Twice: one bad line is left out.
            let log = format!("timestamp,gpu_util,power_w,processes\n{time},1,,\n{row}\n{row}\n");
            let error = samples(&log).unwrap_err();
            assert_eq!(error.exit(), Exit::Data);
            let expected = format!("gpu.csv: line 3: {expected}");
            assert!(
                error.to_string().starts_with(&expected),
                "{error}: {expected}"
            );
        }
        let other = samples(">P1\nMKV\n").unwrap_err().to_string();
        assert!(other.contains("line 1: not a GPU sample log"), "{other}");
    }
}
