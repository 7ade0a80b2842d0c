//! GPU samples as Parquet: the same columns as the CSV log, typed and small, for archives and data frames.
//!
//! A Parquet file cannot be followed or torn: it is made of a log that is complete, and read as the log that it was made of.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use csv::StringRecord;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use plmkit_store::{AtomicFile, open_input};

use crate::gpu_csv::{GpuCsvReader, HEADER, parse_row};
use crate::{GpuSample, LogError};

/// How a Parquet file begins.
const MAGIC: &[u8] = b"PAR1";

/// The columns of the log, each with its type.
fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("+00:00".into()));
    let kind = |column: &str| match column {
        "timestamp" => time.clone(),
        "boot_id" | "uuid" | "name" | "throttle" | "processes" => DataType::Utf8,
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
        | "boot_s" => DataType::Float64,
        _ => DataType::UInt64,
    };
    let columns = HEADER.trim_end().split(',');
    let fields: Vec<Field> = columns
        .map(|column| Field::new(column, kind(column), column != "timestamp"))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Makes the Parquet file `parquet` of the log `csv`, which must end with a whole line. There is no file until it is complete.
pub fn to_parquet(csv: &Path, parquet: &Path) -> Result<(), LogError> {
    let log = open_input(csv)?;
    let file = AtomicFile::create(parquet)?;
    copy_rows(log, file)
        .map_err(|error| LogError::Write {
            path: parquet.to_owned(),
            source: io::Error::other(error),
        })?
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

/// The samples of a log or of a Parquet file, whichever is there, in their order.
pub enum GpuSamples {
    /// Of a CSV log.
    Csv(Box<GpuCsvReader<Box<dyn BufRead>>>),
    /// Of a Parquet file.
    Parquet(Box<dyn Iterator<Item = Result<GpuSample, LogError>>>),
}

impl GpuSamples {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let mut file = open_input(path)?;
        let mut head = Vec::new();
        // A file that cannot be sought, a pipe, is a log.
        if file.stream_position().is_ok() {
            let magic = (&mut file).take(MAGIC.len() as u64);
            let read = { magic }.read_to_end(&mut head).and_then(|_| file.rewind());
            read.map_err(|source| LogError::Read {
                path: path.to_owned(),
                source,
            })?;
        }
        if head == MAGIC {
            return read_parquet(file, path.to_owned());
        }
        let source: Box<dyn BufRead> = Box::new(BufReader::new(file));
        Ok(Self::Csv(Box::new(GpuCsvReader::new(source, path))))
    }

    /// Whether a last line without its newline was left out: known at the end.
    pub fn torn(&self) -> bool {
        matches!(self, Self::Csv(log) if log.torn())
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

fn read_parquet(file: File, path: PathBuf) -> Result<GpuSamples, LogError> {
    let not_samples = move |reason| LogError::NotSamples {
        path: path.clone(),
        reason,
    };
    let batches = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| not_samples(error.to_string()))?;
    let samples = batches.flat_map(|batch| {
        let samples = batch.and_then(|batch| parse_batch(&batch));
        samples.unwrap_or_else(|error| vec![Err(error.to_string())])
    });
    let samples = samples.map(move |sample| sample.map_err(&not_samples));
    Ok(GpuSamples::Parquet(Box::new(samples)))
}

/// The rows of a batch, each read as the row of a log with the same values.
fn parse_batch(batch: &RecordBatch) -> Result<Vec<Result<GpuSample, String>>, ArrowError> {
    let options = FormatOptions::new().with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.3fZ"));
    let columns = batch.columns().iter();
    let columns: Vec<ArrayFormatter> = columns
        .map(|column| ArrayFormatter::try_new(column, &options))
        .collect::<Result<_, _>>()?;
    let schema = batch.schema();
    let header: StringRecord = schema.fields().iter().map(|field| field.name()).collect();
    let samples = (0..batch.num_rows()).map(|row| {
        let values: StringRecord = columns
            .iter()
            .map(|column| column.value(row).to_string())
            .collect();
        parse_row(Some(&header), &values)
    });
    Ok(samples.collect())
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
            boot_id: Some("b".to_owned()),
            boot_s: Some(0.001),
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
