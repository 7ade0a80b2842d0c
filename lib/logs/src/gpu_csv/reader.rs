//! Reads GPU samples.

use csv::{ErrorKind, ReaderBuilder, StringRecord};
use plmkit_contract::Quoted;

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
/// assert_eq!(reader.finish()?.map(|torn| torn.first_line), Some(3));
/// # Ok::<(), plmkit_store::StoreError>(())
/// ```
pub type GpuCsvReader<R> = LogReader<R, GpuCsvLines>;

/// Parses the lines of a sample log, the first of which is the header.
#[derive(Debug, Default)]
pub struct GpuCsvLines {
    header: Option<StringRecord>,
}

impl LineParser for GpuCsvLines {
    type Item = GpuSample;

    fn parse(&mut self, line: &[u8]) -> Result<Option<GpuSample>, String> {
        let row = fields(line)?;
        match &self.header {
            None if row.iter().all(|column| column != "timestamp") => {
                Err("not a GPU sample log: it has no 'timestamp' column".to_owned())
            }
            None => {
                self.header = Some(row);
                Ok(None)
            }
            // A second header: two recorders may have found a new log empty.
            Some(header) if row == *header => Ok(None),
            Some(header) => parse_row(header, &row).map(Some),
        }
    }

    fn time(sample: &GpuSample) -> Option<Timestamp> {
        Some(sample.timestamp)
    }
}

/// Splits a line into its fields. A line that ends within quotes does not take the lines after it with it.
fn fields(line: &[u8]) -> Result<StringRecord, String> {
    let mut row = StringRecord::new();
    let mut line = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(line.len().max(1))
        .from_reader(line);
    let read = line.read_record(&mut row);
    read.map_err(|_| "not UTF-8".to_owned())?;
    Ok(row)
}

/// Parses a row. The error has no file and line.
fn parse_row(header: &StringRecord, row: &StringRecord) -> Result<GpuSample, String> {
    if row.len() != header.len() {
        let (expected, found) = (header.len(), row.len());
        let torn = if found > expected {
            ": is the header torn?"
        } else {
            ""
        };
        return Err(format!(
            "wrong number of columns; expected {expected}, found {found}{torn}"
        ));
    }
    let sample = row.deserialize::<GpuSample>(Some(header));
    let sample = sample.map_err(|error| value_error(&error, header, row))?;
    check(&sample)?;
    Ok(sample)
}

fn value_error(error: &csv::Error, header: &StringRecord, row: &StringRecord) -> String {
    let ErrorKind::Deserialize { err, .. } = error.kind() else {
        return error.to_string();
    };
    if let Some(column) = err.field().and_then(|field| header.get(field as usize)) {
        return format!("column '{column}': {}", err.kind());
    }
    // csv gives no column for an error of a custom type.
    let mut values = header.iter().zip(row);
    let time = values.find(|(column, _)| *column == "timestamp");
    match time {
        Some((_, time)) if time.parse::<Timestamp>().is_err() => format!(
            "column 'timestamp': expected a time as 2026-01-31T12:00:00.000Z, found {}",
            Quoted(time)
        ),
        _ => err.kind().to_string(),
    }
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
            return Err(format!(
                "column '{column}': expected {expected}, found {value}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Exit, Failure};

    use super::*;
    use crate::gpu_csv::HEADER;
    use plmkit_store::StoreError;

    fn samples(log: &str) -> Result<Vec<GpuSample>, StoreError> {
        let mut reader = GpuCsvReader::new(log.as_bytes(), "gpu.csv");
        let samples = reader.by_ref().collect();
        reader.finish().and(samples)
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
    fn a_line_that_ends_in_quotes_is_no_row_and_takes_no_other_with_it() {
        for line in [
            "a,b\n",
            "a,\"b, c\",d\n",
            "\"a\n",
            "a,\"b\"\"\n",
            "ab\"c,\"d\n",
        ] {
            let log = format!("timestamp,name\n{line}2026-01-31T12:00:00Z,x\n");
            assert_eq!(samples(&log).unwrap().len(), 1, "{line}");
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
                "column 'power_w': expected a number from 0 on, found NaN".to_owned(),
            ),
            (
                format!("{time},1,,x"),
                "expected value at line 1 column 1".to_owned(),
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
