//! Files to check, and how their reports are read.
#![allow(dead_code)] // each test uses some of it

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float64Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use plmkit_contract::{
    ByteDigest, Column, EmbeddingLayout, Kind, Pooling, Provenance, RESIDUES, RowDigest, RowKey,
    RowsBuilder, SequenceDigest, ShardRow, StoreDtype,
};
use plmkit_store::{EmbeddingsWriter, RecordListWriter};
use serde_json::Value;

use crate::common::bin;

pub(crate) const MEAN: Column = Column::Pooled {
    pool: Pooling::Mean,
    layer: 6,
};
pub(crate) const DIM: usize = 8;

/// One row of an embeddings file.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) ordinal: u64,
    pub(crate) id: String,
    pub(crate) start: u32,
    pub(crate) length: u32,
    pub(crate) truncated: bool,
    pub(crate) digest: SequenceDigest,
    pub(crate) vector: Vec<f32>,
}

impl Row {
    fn key(&self) -> RowKey<'_> {
        RowKey {
            ordinal: self.ordinal,
            id: &self.id,
            start: self.start,
            length: self.length,
            truncated: self.truncated,
            digest: self.digest,
            n_windows: 1,
        }
    }
}

/// Thirty proteins, of which number 7 was rejected and number 9 is cut into two windows.
pub(crate) fn rows() -> Vec<Row> {
    let windows = |ordinal| if ordinal == 9 { vec![0, 20] } else { vec![0] };
    let keys = (0..30).filter(|&ordinal| ordinal != 7);
    let keys = keys.flat_map(|ordinal| {
        windows(ordinal)
            .into_iter()
            .map(move |start| (ordinal, start))
    });
    keys.map(|(ordinal, start)| Row {
        ordinal,
        id: format!("P{ordinal:02}"),
        start,
        length: 10 + ordinal as u32,
        truncated: ordinal == 11,
        digest: SequenceDigest::new(sequence(ordinal, start).as_bytes()),
        vector: (0..DIM)
            .map(|i| {
                ((ordinal * 31 + u64::from(start) + i as u64 * 17) % 23) as f32 - 11.5
                    + 0.01 * ordinal as f32
            })
            .collect(),
    })
    .collect()
}

/// Ten residues, others for each row.
pub(crate) fn sequence(ordinal: u64, start: u32) -> String {
    let row = ordinal + 100 * u64::from(start);
    let residue = |i| RESIDUES[((row / 20_u64.pow(i)) % 20) as usize];
    (0..10).map(|i| char::from(residue(i))).collect()
}

/// A folder with `shard.parquet` and `rejects.csv` for [`rows`].
pub(crate) struct Set(pub(crate) tempfile::TempDir);

impl Set {
    pub(crate) fn new() -> Self {
        let set = Self(tempfile::tempdir().expect("temp folder"));
        set.shard("shard.parquet", &rows());
        fs::write(
            set.path("rejects.csv"),
            "ordinal,id,length,reason\n7,P07,0,empty\n",
        )
        .expect("write");
        set
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn shard(&self, name: &str, rows: &[Row]) {
        let rows = rows
            .iter()
            .map(|row| (row.key(), sequence(row.ordinal, row.start)));
        write_shard(
            &self.path(name),
            rows,
            &Provenance::new("fasta-shard", vec![]),
        );
    }

    pub(crate) fn embeddings(&self, name: &str, rows: &[Row], dtype: StoreDtype) -> PathBuf {
        let path = self.path(name);
        let layout = EmbeddingLayout {
            columns: vec![MEAN],
            dim: rows.first().map_or(DIM, |row| row.vector.len()),
            logits: plmkit_contract::VOCABULARY,
            dtype,
            stitched: false,
            labels: plmkit_contract::Labels::default(),
        };
        let mut provenance = Provenance::new("gpu-embed", vec![]);
        if let Ok(list) = fs::read(self.path("embeddings.rejects.csv")) {
            provenance = provenance.with_rejects(ByteDigest::compute(&list).to_string());
        }
        let keys: Vec<RowKey> = rows.iter().map(Row::key).collect();
        let columns = vec![vectors(rows, &dtype.arrow())];
        write_embeddings(&path, &layout, &keys, columns, &provenance);
        path
    }

    /// Embeddings of all rows after `change`.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Vec<Row>)) -> PathBuf {
        let mut rows = rows();
        change(&mut rows);
        self.embeddings("embeddings.parquet", &rows, StoreDtype::F32)
    }

    /// A reference with these columns.
    pub(crate) fn reference(&self, columns: &[(&str, ArrayRef)]) -> PathBuf {
        self.parquet("reference.parquet", columns, Compression::UNCOMPRESSED)
    }

    /// A file with these columns.
    pub(crate) fn parquet(
        &self,
        name: &str,
        columns: &[(&str, ArrayRef)],
        compression: Compression,
    ) -> PathBuf {
        let path = self.path(name);
        let batch =
            RecordBatch::try_from_iter(columns.iter().cloned()).expect("columns of one length");
        let file = File::create(&path).expect("create");
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .build();
        let writer = ArrowWriter::try_new(file, batch.schema(), Some(properties));
        let mut writer = writer.expect("a writer");
        writer.write(&batch).expect("write");
        writer.close().expect("close");
        path
    }

    pub(crate) fn expecting(&self, embeddings: &Path) -> Command {
        let mut command = bin("validate-embeddings");
        command
            .arg(embeddings)
            .arg("--shards")
            .arg(self.path("shard.parquet"));
        command.arg("--rejects").arg(self.path("rejects.csv"));
        command
    }

    /// The report on `command`, which must end with `code`, and what it says on standard error.
    pub(crate) fn report(&self, command: &mut Command, code: i32) -> (Value, String) {
        let path = self.path("report.json");
        let output = command.arg("--report").arg(&path).output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        (
            serde_json::from_slice(&fs::read(path).expect("report")).expect("JSON"),
            stderr,
        )
    }
}

/// Writes a shard of rows with their residues.
pub(crate) fn write_shard<'a>(
    path: &Path,
    rows: impl Iterator<Item = (RowKey<'a>, String)>,
    provenance: &Provenance,
) {
    let mut writer = RecordListWriter::create(path, Kind::Shard).expect("create");
    for (key, sequence) in rows {
        let row = ShardRow {
            key,
            description: None,
            sequence: &sequence,
        };
        writer.push(&row).expect("push");
    }
    let finished = writer.finish(provenance).expect("finish");
    finished.1.finish().expect("publish");
}

/// Writes embeddings: the columns after those of the key.
pub(crate) fn write_embeddings(
    path: &Path,
    layout: &EmbeddingLayout,
    keys: &[RowKey],
    columns: Vec<ArrayRef>,
    provenance: &Provenance,
) {
    let mut writer = EmbeddingsWriter::create(path, layout).expect("create");
    if !keys.is_empty() {
        let mut rows = RowsBuilder::of_keys();
        for key in keys {
            rows.push(key);
        }
        let columns = rows.finish().into_iter().chain(columns).collect();
        let batch = RecordBatch::try_new(SchemaRef::clone(writer.schema()), columns);
        let batch = batch.expect("the columns of the schema");
        writer.write(&batch).expect("write");
    }
    writer.finish(provenance).expect("finish");
}

/// Replaces a text in the footer of a file by another of the same length, and makes its checksums anew.
pub(crate) fn alter_footer(path: &Path, from: &str, to: &str) {
    const HEAD: usize = 32;
    let mut file = fs::read(path).expect("read");
    let length = |end: &[u8]| u32::from_le_bytes(end.try_into().expect("4 bytes")) as usize;
    let footer = match file.strip_suffix(b"PAR1") {
        Some(rest) => file.len() - 8 - length(&rest[rest.len() - 4..]),
        None => file.len() - 10 - length(&file[file.len() - 10..file.len() - 6]),
    };
    let found = file[footer..].windows(from.len());
    let places: Vec<usize> = found
        .enumerate()
        .filter(|(_, text)| *text == from.as_bytes())
        .map(|(at, _)| footer + at)
        .collect();
    assert!(from.len() == to.len() && !places.is_empty(), "{from}");
    for at in places {
        file[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    let counted = footer - HEAD;
    let segments = u64::from_le_bytes(file[counted..counted + 8].try_into().expect("8 bytes"));
    let block = counted - 20 * segments as usize;
    let summed = [&file[block..counted + 8], &file[footer..]].concat();
    let digest = ByteDigest::compute(&summed).to_string();
    let digest = digest.rsplit(':').next().expect("digits");
    let digest = u128::from_str_radix(digest, 16).expect("a number");
    file[counted + 8..counted + 24].copy_from_slice(&digest.to_le_bytes());
    fs::write(path, file).expect("write");
}

/// Gives a file the digest of other rows: another sum, or another number.
pub(crate) fn alter_digest(path: &Path, digest: RowDigest, is_sum: bool) {
    let digest = digest.to_string();
    let (rest, rows) = digest.rsplit_once(':').expect("a digest");
    let flip = |text: &str| {
        let last = if text.ends_with('1') { "2" } else { "1" };
        format!("{}{last}", &text[..text.len() - 1])
    };
    let other = if is_sum {
        format!("{}:{rows}", flip(rest))
    } else {
        format!("{rest}:{}", flip(rows))
    };
    alter_footer(path, &digest, &other);
}

/// Vectors of `dim` values as a column of `value`.
pub(crate) fn column(values: &Float32Array, dim: usize, value: &DataType) -> ArrayRef {
    let values: ArrayRef = match value {
        DataType::Float16 => Arc::new(
            values.unary::<_, Float16Type>(<Float16Type as ArrowPrimitiveType>::Native::from_f32),
        ),
        DataType::Float64 => Arc::new(values.unary::<_, Float64Type>(f64::from)),
        _ => Arc::new(values.clone()),
    };
    let item = Arc::new(Field::new_list_field(value.clone(), false));
    let dim = i32::try_from(dim).expect("a small dimension");
    Arc::new(FixedSizeListArray::new(item, dim, values, None))
}

/// The vectors of `rows` as a fixed-size list of `value`.
pub(crate) fn vectors(rows: &[Row], value: &DataType) -> ArrayRef {
    let dim = rows.first().map_or(DIM, |row| row.vector.len());
    let values: Float32Array = rows.iter().flat_map(|row| row.vector.clone()).collect();
    column(&values, dim, value)
}

pub(crate) fn ids(rows: &[Row]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(
        rows.iter().map(|row| &row.id),
    ))
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("run")
}

/// The check `name` of a report.
pub(crate) fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks
        .iter()
        .find(|check| check["name"] == name)
        .expect(name)
}

/// The checks that failed.
pub(crate) fn failed(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks
        .filter(|check| check["outcome"] == "fail")
        .filter_map(|check| check["name"].as_str())
        .collect()
}
