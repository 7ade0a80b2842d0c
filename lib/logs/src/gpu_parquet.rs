//! GPU samples as Parquet: the columns of the CSV log, typed and compressed, for archives and data frames.
//!
//! A Parquet file is made from a complete log, and read as that log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use csv::StringRecord;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use plmkit_store::{AtomicFile, ForeignParquet, StoreError, open_input};

use crate::gpu_csv::{GpuCsvReader, HEADER, parse_row};
use crate::{GpuSample, LogError, SkippedLines};

/// How a Parquet file begins.
const MAGIC: &[u8] = b"PAR1";

/// Returns the columns of the log with their types.
fn schema() -> SchemaRef {
    let fields = HEADER.trim_end().split(',').map(|column| {
        let floats = ["_w", "_j", "_s", "_active", "host_cpu_util"];
        let kind = match column {
            "timestamp" => DataType::Timestamp(TimeUnit::Millisecond, Some("+00:00".into())),
            "boot_id" | "uuid" | "name" | "throttle" | "processes" => DataType::Utf8,
            "index" | "gpu_util" | "mem_util" | "sm_clock_mhz" | "mem_clock_mhz"
            | "foreign_processes" => DataType::UInt32,
            _ if column.ends_with("_c") => DataType::UInt32,
            _ if floats.iter().any(|end| column.ends_with(end)) => DataType::Float64,
            _ => DataType::UInt64,
        };
        Field::new(column, kind, column != "timestamp")
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Converts the log `csv`, which must end with a complete line, to the file `parquet`. The file is written atomically.
pub fn to_parquet(csv: &Path, parquet: &Path) -> Result<(), LogError> {
    let log = open_input(csv)?;
    let file = AtomicFile::create(parquet)?;
    copy_rows(log, file)
        .map_err(|error| StoreError::cannot_write(parquet)(io::Error::other(error)))?
        .finish()?;
    Ok(())
}

fn copy_rows(log: File, file: AtomicFile) -> Result<AtomicFile, ArrowError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(file, schema(), Some(properties))?;
    for rows in ReaderBuilder::new(schema()).with_header(true).build(log)? {
        writer.write(&rows?)?;
    }
    Ok(writer.into_inner()?)
}

/// The samples of a CSV log or of a Parquet file, in their order.
pub enum GpuSamples {
    /// A CSV log.
    Csv(Box<GpuCsvReader<Box<dyn BufRead>>>),
    /// A Parquet file.
    Parquet(Box<dyn Iterator<Item = Result<GpuSample, LogError>>>),
}

impl GpuSamples {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let mut file = open_input(path)?;
        let mut head = Vec::new();
        // A file that cannot seek, a pipe, is a log.
        if file.stream_position().is_ok() {
            let magic = (&mut file).take(MAGIC.len() as u64);
            let read = { magic }.read_to_end(&mut head).and_then(|_| file.rewind());
            read.map_err(StoreError::cannot_read(path))?;
        }
        if head == MAGIC {
            return read_parquet(path.to_owned());
        }
        let source: Box<dyn BufRead> = Box::new(BufReader::new(file));
        Ok(Self::Csv(Box::new(GpuCsvReader::new(source, path))))
    }

    /// Whether a last line without a newline was left out. Known at the end.
    pub fn torn(&self) -> bool {
        matches!(self, Self::Csv(log) if log.torn())
    }

    /// Returns the malformed rows of a CSV log that were left out so far.
    pub fn skipped(&self) -> Option<SkippedLines> {
        match self {
            Self::Csv(log) => log.skipped(),
            Self::Parquet(_) => None,
        }
    }
}

impl Iterator for GpuSamples {
    type Item = Result<GpuSample, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Csv(samples) => samples.next(),
            Self::Parquet(samples) => samples.next(),
        }
    }
}

fn read_parquet(path: PathBuf) -> Result<GpuSamples, LogError> {
    let all = |schema: &Schema| {
        Ok(schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect())
    };
    let mut file = Some(ForeignParquet::open(&path, all)?);
    let batches = iter::from_fn(move || {
        let batch = file.as_mut()?.next_batch().transpose();
        // A damaged file has no next batch.
        file = file.take().filter(|_| matches!(batch, Some(Ok(_))));
        batch
    });
    let not_samples = move |reason| LogError::NotSamples {
        path: path.clone(),
        reason,
    };
    let samples = batches.flat_map(move |batch| match batch {
        Ok(batch) => {
            let samples = parse_batch(&batch).unwrap_or_else(|error| vec![Err(error.to_string())]);
            let samples = samples.into_iter();
            samples.map(|sample| sample.map_err(&not_samples)).collect()
        }
        Err(error) => vec![Err(error.into())],
    });
    Ok(GpuSamples::Parquet(Box::new(samples)))
}

/// Parses the rows of a batch as rows of a log with the same values.
fn parse_batch(batch: &RecordBatch) -> Result<Vec<Result<GpuSample, String>>, ArrowError> {
    let options = FormatOptions::new().with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.3fZ"));
    // Parquet calls it UTC, which the formatter does not know.
    let columns = batch.columns().iter().map(|column| {
        let times = column.as_primitive_opt::<TimestampMillisecondType>();
        times.map_or_else(
            || Arc::clone(column),
            |times| Arc::new(times.clone().with_timezone_utc()) as ArrayRef,
        )
    });
    let columns: Vec<ArrayRef> = columns.collect();
    let columns: Vec<ArrayFormatter> = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options))
        .collect::<Result<_, _>>()?;
    let schema = batch.schema();
    let header: StringRecord = schema.fields().iter().map(|field| field.name()).collect();
    let samples = (0..batch.num_rows()).map(|row| {
        let values: StringRecord = columns
            .iter()
            .map(|column| column.value(row).to_string())
            .collect();
        parse_row(&header, &values)
    });
    Ok(samples.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn samples_are_the_same_in_both_formats() {
        // A value in each column, the largest of its kind: a column of another type would refuse or change it.
        let schema = schema();
        let largest = schema.fields().iter().map(|field| match field.data_type() {
            DataType::UInt32 if field.name().ends_with("_util") => "100".to_owned(),
            DataType::UInt32 => u32::MAX.to_string(),
            DataType::UInt64 => u64::MAX.to_string(),
            DataType::Float64 if field.name() == "energy_j" => (1e9 + 0.125).to_string(),
            DataType::Float64 => "99.5".to_owned(),
            DataType::Utf8 if field.name() == "processes" => "7::5;1:2:3".to_owned(),
            DataType::Utf8 => "\"text, \"\"3\"\"\"".to_owned(),
            _ => "2026-01-31T12:00:00.007Z".to_owned(),
        });
        let largest = largest.collect::<Vec<_>>().join(",");
        let empty = ",".repeat(schema.fields().len() - 1);
        let log = format!("{HEADER}{largest}\n2026-01-31T12:00:01.000Z{empty}\n");
        let folder = tempfile::tempdir().unwrap();
        let [csv, parquet] = ["gpu.csv", "gpu.parquet"].map(|name| folder.path().join(name));
        fs::write(&csv, log).unwrap();
        to_parquet(&csv, &parquet).unwrap();
        let read = |path: &Path| -> Vec<GpuSample> {
            let samples = GpuSamples::open(path).unwrap();
            samples.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(read(&parquet), read(&csv));
        assert!(fs::read(&parquet).unwrap().starts_with(MAGIC));
        let json = serde_json::to_value(&read(&csv)[0]).unwrap();
        assert_eq!(json.as_object().unwrap().len(), schema.fields().len());
        assert!(
            json.as_object()
                .unwrap()
                .values()
                .all(|value| !value.is_null())
        );
    }

    #[test]
    fn a_damaged_file_is_an_error_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let [csv, parquet] = ["gpu.csv", "gpu.parquet"].map(|name| folder.path().join(name));
        let columns = schema().fields().len();
        let row = format!("2026-01-31T12:00:01.000Z{}\n", ",".repeat(columns - 1));
        fs::write(&csv, format!("{HEADER}{row}")).unwrap();
        to_parquet(&csv, &parquet).unwrap();
        let whole = fs::read(&parquet).unwrap();
        let mut refused = 0;
        let places = (0..whole.len()).step_by(11);
        let count = places.len();
        for at in places {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            fs::write(&parquet, damaged).unwrap();
            let read = GpuSamples::open(&parquet).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            if let Err(error) = read {
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
                refused += 1;
            }
        }
        assert!(refused > count / 2, "{refused} of {count}");
    }
}
