//! GPU samples as Parquet: the same columns as the CSV log, typed and small, for archives and data frames.
//!
//! A Parquet file cannot be followed or torn: it is made of a log that is complete, and read as the log that it was made of.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use arrow::csv::{ReaderBuilder, WriterBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use plmkit_store::{AtomicFile, open_input};

use crate::gpu_csv::{GpuCsvReader, HEADER};
use crate::{GpuSample, TelemetryError};

/// How a Parquet file begins.
const MAGIC: &[u8] = b"PAR1";

/// The columns of the log, each with its type.
fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("+00:00".into()));
    let kind = |column: &str| match column {
        "timestamp" => time.clone(),
        "uuid" | "name" | "throttle" | "processes" => DataType::Utf8,
        "index" | "gpu_util" | "mem_util" | "temperature_c" | "sm_clock_mhz" | "mem_clock_mhz"
        | "foreign_processes" => DataType::UInt32,
        "power_w"
        | "power_limit_w"
        | "energy_j"
        | "pcie_rx_mib_s"
        | "pcie_tx_mib_s"
        | "sm_active"
        | "tensor_active"
        | "dram_active"
        | "host_cpu_util"
        | "host_disk_read_mib_s"
        | "host_disk_write_mib_s"
        | "elapsed_s" => DataType::Float64,
        _ => DataType::UInt64,
    };
    let columns = HEADER.trim_end().split(',');
    let fields: Vec<Field> = columns
        .map(|column| Field::new(column, kind(column), column != "timestamp"))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Makes the Parquet file `parquet` of the log `csv`, which must end with a whole line. There is no file until it is complete.
pub fn to_parquet(csv: &Path, parquet: &Path) -> Result<(), TelemetryError> {
    let log = open_input(csv)?;
    let file = AtomicFile::create(parquet)?;
    let failed = |error: io::Error| TelemetryError::Write {
        path: parquet.to_owned(),
        source: error,
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(file, schema(), Some(properties))
        .map_err(|error| failed(io::Error::other(error)))?;
    let rows = ReaderBuilder::new(schema())
        .with_header(true)
        .build(log)
        .map_err(|error| failed(io::Error::other(error)))?;
    for batch in rows {
        let batch = batch.map_err(|error| failed(io::Error::other(error)))?;
        writer
            .write(&batch)
            .map_err(|error| failed(io::Error::other(error)))?;
    }
    let file = writer
        .into_inner()
        .map_err(|error| failed(io::Error::other(error)))?;
    Ok(file.finish()?)
}

/// The samples of a log or of a Parquet file, whichever is there, in their order.
pub struct GpuSamples(GpuCsvReader<Box<dyn io::BufRead>>);

impl GpuSamples {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, TelemetryError> {
        let mut file = open_input(path)?;
        let mut head = Vec::new();
        let read_error = |source| TelemetryError::Read {
            path: path.to_owned(),
            source,
        };
        // What cannot be sought, a pipe, is a log.
        let source: Box<dyn io::BufRead> = if file.stream_position().is_err() {
            Box::new(BufReader::new(file))
        } else {
            (&mut file)
                .take(MAGIC.len() as u64)
                .read_to_end(&mut head)
                .map_err(read_error)?;
            file.rewind().map_err(read_error)?;
            if head == MAGIC {
                let rows = AsCsv::open(file).map_err(|error| TelemetryError::NotSamples {
                    path: path.to_owned(),
                    reason: error.to_string(),
                })?;
                Box::new(BufReader::new(rows))
            } else {
                Box::new(BufReader::new(file))
            }
        };
        Ok(Self(GpuCsvReader::new(source, path)))
    }

    /// Whether a last line without its newline was left out: known at the end.
    pub fn torn(&self) -> bool {
        self.0.torn()
    }
}

impl Iterator for GpuSamples {
    type Item = Result<GpuSample, TelemetryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// A Parquet file, read as the log that it was made of.
struct AsCsv {
    rows: ParquetRecordBatchReader,
    /// Whether the header is still to come.
    header: bool,
    text: Cursor<Vec<u8>>,
}

impl AsCsv {
    fn open(file: File) -> Result<Self, ParquetError> {
        Ok(Self {
            rows: ParquetRecordBatchReaderBuilder::try_new(file)?.build()?,
            header: true,
            text: Cursor::default(),
        })
    }

    /// The next rows as text; nothing at the end.
    fn refill(&mut self) -> Result<Vec<u8>, ArrowError> {
        let mut text = Vec::new();
        let Some(batch) = self.rows.next() else {
            return Ok(text);
        };
        WriterBuilder::new()
            .with_header(self.header)
            .with_timestamp_tz_format("%Y-%m-%dT%H:%M:%S%.3fZ".to_owned())
            .build(&mut text)
            .write(&batch?)?;
        self.header = false;
        Ok(text)
    }
}

impl Read for AsCsv {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(into)?;
        if read > 0 || into.is_empty() {
            return Ok(read);
        }
        let text = self.refill().map_err(damaged)?;
        self.text = Cursor::new(text);
        self.text.read(into)
    }
}

/// What the reader of logs takes as a fault of the file and not of the disk.
fn damaged(error: ArrowError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::gpu_csv::GpuCsvWriter;
    use crate::{GpuProcess, Processes, Throttle};

    fn samples() -> Vec<GpuSample> {
        let at = |time: &str| GpuSample::at(time.parse().unwrap());
        let full = GpuSample {
            index: Some(3),
            uuid: Some("GPU-3".to_owned()),
            name: Some("Fake, \"3\"".to_owned()),
            gpu_util: Some(0),
            mem_used_mib: Some(u64::MAX),
            power_w: Some(250.5),
            throttle: Some(Throttle(vec![])),
            processes: Some(Processes(vec![GpuProcess {
                pid: 7,
                mem_used_mib: None,
                gpu_util: Some(5),
            }])),
            foreign_processes: Some(1),
            energy_j: Some(1e9 + 0.125),
            elapsed_s: Some(0.001),
            ..at("2026-01-31T12:00:00.007Z")
        };
        vec![full, at("2026-01-31T12:00:01Z")]
    }

    fn read(path: &Path) -> Vec<GpuSample> {
        GpuSamples::open(path)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn samples_are_the_same_in_both_forms() {
        let folder = tempfile::tempdir().unwrap();
        let [csv, parquet] = ["gpu.csv", "gpu.parquet"].map(|name| folder.path().join(name));
        GpuCsvWriter::append(&csv)
            .unwrap()
            .write(&samples())
            .unwrap();
        to_parquet(&csv, &parquet).unwrap();
        assert_eq!(read(&csv), samples());
        assert_eq!(read(&parquet), samples());
        assert!(fs::read(&parquet).unwrap().starts_with(MAGIC));
    }

    #[test]
    fn every_column_has_the_type_of_its_field() {
        // A value in each column, the largest of its kind: a column of another type would refuse or change it.
        let json = serde_json::to_value(&samples()[0]).unwrap();
        let columns: Vec<&str> = HEADER.trim_end().split(',').collect();
        assert_eq!(json.as_object().unwrap().len(), columns.len());
        let mut line = Vec::new();
        for field in schema().fields() {
            line.push(match field.data_type() {
                DataType::UInt32 if field.name().ends_with("_util") => "100".to_owned(),
                DataType::UInt32 => u32::MAX.to_string(),
                DataType::UInt64 => u64::MAX.to_string(),
                DataType::Float64 => "99.5".to_owned(),
                DataType::Utf8 if field.name() == "processes" => "1:2:3".to_owned(),
                DataType::Utf8 => "text".to_owned(),
                _ => "2026-01-31T12:00:00.000Z".to_owned(),
            });
        }
        let folder = tempfile::tempdir().unwrap();
        let [csv, parquet] = ["gpu.csv", "gpu.parquet"].map(|name| folder.path().join(name));
        fs::write(&csv, format!("{HEADER}{}\n", line.join(","))).unwrap();
        to_parquet(&csv, &parquet).unwrap();
        assert_eq!(read(&parquet), read(&csv));
    }

    #[test]
    fn a_damaged_file_is_an_error_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.parquet");
        fs::write(&path, b"PAR1 and no more").unwrap();
        let error = GpuSamples::open(&path).err().unwrap().to_string();
        assert!(error.contains("gpu.parquet: not GPU samples: "), "{error}");
    }
}
