//! Embeddings with the statistics of real ones: three files of 400 proteins each, with residues, poolings and repeats.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, ListArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, SchemaRef};
use plmkit_contract::{
    EmbeddingLayout, Kind, Labels, ModelName, Provenance, RESIDUES, RowDigest, RowKey, RowsBuilder,
    SequenceDigest, ShardRow, StoreDtype,
};
use plmkit_store::{EmbeddingsWriter, RecordListWriter, read_shard};

use crate::common::bin;

pub(crate) const DIM: usize = 32;
pub(crate) const FILES: usize = 3;
pub(crate) const ROWS: usize = 400;

/// A protein and what was computed of it.
#[derive(Clone)]
pub(crate) struct Protein {
    pub(crate) ordinal: u64,
    pub(crate) id: String,
    pub(crate) sequence: String,
    pub(crate) start: u32,
    pub(crate) length: u32,
    pub(crate) truncated: bool,
    pub(crate) digest: SequenceDigest,
    /// `(length, DIM)`
    pub(crate) residues: Vec<f32>,
    pub(crate) mean: Vec<f32>,
    pub(crate) max: Vec<f32>,
    pub(crate) std: Vec<f32>,
}

/// An embeddings file before it is written.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) rows: Vec<Protein>,
    pub(crate) provenance: Provenance,
    pub(crate) columns: Vec<&'static str>,
}

/// A number from 0 to 1 that looks random: splitmix64.
fn random(seed: u64) -> f32 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 24) as f32
}

/// A number that is about normally distributed.
pub(crate) fn noise(seed: u64) -> f32 {
    (0..4).map(|i| random(4 * seed + i) - 0.5).sum::<f32>() * 1.7
}

/// The protein of an ordinal, as the model of a seed sees it. Every tenth has the residues of the one before.
fn protein(ordinal: u64, model: u64) -> Protein {
    let same_as = if ordinal % 10 == 9 {
        ordinal - 1
    } else {
        ordinal
    };
    let length = 20 + (random(same_as) * 60.0) as usize;
    let residue = |i| RESIDUES[(random(same_as * 1000 + i) * 20.0) as usize];
    let sequence: String = (0..length as u64).map(|i| char::from(residue(i))).collect();
    let mut residues = Vec::with_capacity(length * DIM);
    for (i, letter) in sequence.bytes().enumerate() {
        for d in 0..DIM as u64 {
            // A centre that all proteins share, one outlier channel, what the residue decides, and the context.
            let centre = noise(model + 7 * d) * if d == 5 { 60.0 } else { 3.0 };
            let own = noise(model + 100 * u64::from(letter) + d);
            let context = 0.5 * noise(model + 1_000_003 * same_as + 97 * (i as u64 / 10) + d);
            residues.push(centre + own + context);
        }
    }
    let column = |d: usize| residues.iter().skip(d).step_by(DIM).copied();
    let mean: Vec<f32> = (0..DIM)
        .map(|d| column(d).sum::<f32>() / length as f32)
        .collect();
    let variance = |d: usize| column(d).map(|x| (x - mean[d]).powi(2)).sum::<f32>() / length as f32;
    Protein {
        ordinal,
        id: format!("P{ordinal:04}"),
        start: 0,
        length: length as u32,
        truncated: false,
        digest: SequenceDigest::new(sequence.as_bytes()),
        max: (0..DIM)
            .map(|d| column(d).fold(f32::MIN, f32::max))
            .collect(),
        std: (0..DIM).map(|d| variance(d).sqrt()).collect(),
        sequence,
        residues,
        mean,
    }
}

/// The proteins of a file.
pub(crate) fn proteins(file: usize, model: u64) -> Vec<Protein> {
    let first = (file * ROWS) as u64;
    (first..first + ROWS as u64)
        .map(|ordinal| protein(ordinal, model))
        .collect()
}

impl Protein {
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

    /// Its vectors in all columns.
    pub(crate) fn vectors(&mut self) -> [&mut Vec<f32>; 4] {
        [
            &mut self.mean,
            &mut self.max,
            &mut self.std,
            &mut self.residues,
        ]
    }
}

/// A folder with shards, their rejects and manifest, and embeddings.
pub(crate) struct Plausible {
    folder: tempfile::TempDir,
    digests: Vec<RowDigest>,
}

impl Plausible {
    /// Shards and no embeddings yet.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("temp folder");
        fs::create_dir(folder.path().join("shards")).expect("folder");
        let mut digests = Vec::new();
        for file in 0..FILES {
            let path = folder.path().join(format!("shards/{file}.parquet"));
            let mut writer = RecordListWriter::create(&path, Kind::Shard).expect("create");
            for protein in proteins(file, 1) {
                let row = ShardRow {
                    key: protein.key(),
                    description: None,
                    sequence: &protein.sequence,
                };
                writer.push(&row).expect("push");
            }
            let finished = writer.finish(&Provenance::new("fasta-shard", vec![]));
            finished
                .and_then(|(_, file)| file.finish())
                .expect("finish");
            let shard = read_shard(&path).expect("shard");
            let mut digest = RowDigest::default();
            let rows = shard.rows();
            let batch = shard.pack(rows.iter(), Labels::default()).expect("batch");
            digest.update(&batch).expect("digest");
            digests.push(digest);
        }
        Self { folder, digests }
    }

    /// Sound embeddings of a file.
    pub(crate) fn file(&self, file: usize) -> File {
        let model = ModelName {
            name: "a/model".to_owned(),
            revision: None,
        };
        let columns = vec!["mean_6", "max_6", "std_6", "residues_6"];
        File {
            rows: proteins(file, 1),
            provenance: Provenance::new("gpu-embed", vec![self.digests[file].to_string()])
                .with("model", "0123456789abcdef")
                .with("dtype", "f32")
                .with("columns", &columns)
                .with("store_dtype", "f32")
                .with_model(model),
            columns,
        }
    }

    /// The path of a file of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes embeddings and validates them against the shards.
    pub(crate) fn command(&self, files: &[File]) -> Command {
        let embeddings = self.folder.path().join("embeddings");
        let _ = fs::remove_dir_all(&embeddings);
        fs::create_dir(&embeddings).expect("folder");
        for (place, file) in files.iter().enumerate() {
            file.write(&embeddings.join(format!("{place}.parquet")));
        }
        let rejects = self.folder.path().join("rejects.csv");
        fs::write(&rejects, "ordinal,id,length,reason\n").expect("write");
        let mut command = bin("validate-embeddings");
        command
            .arg(embeddings)
            .arg("--shards")
            .arg(self.folder.path().join("shards"));
        command
            .arg("--rejects")
            .arg(rejects)
            .args(["--quiet", "--report", "-"]);
        command
    }
}

impl File {
    fn write(&self, path: &Path) {
        let layout = EmbeddingLayout {
            columns: self
                .columns
                .iter()
                .map(|name| name.parse().expect("a column"))
                .collect(),
            dim: DIM,
            logits: plmkit_contract::VOCABULARY,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: Labels::default(),
        };
        let mut writer = EmbeddingsWriter::create(path, &layout).expect("create");
        if !self.rows.is_empty() {
            let mut keys = RowsBuilder::of_keys();
            for row in &self.rows {
                keys.push(&row.key());
            }
            let mut arrays = keys.finish();
            arrays.extend(self.columns.iter().map(|name| self.column(name)));
            let batch = RecordBatch::try_new(SchemaRef::clone(writer.schema()), arrays);
            writer
                .write(&batch.expect("the columns of the schema"))
                .expect("write");
        }
        writer.finish(&self.provenance).expect("finish");
    }

    fn column(&self, name: &str) -> ArrayRef {
        let list = |values: Vec<f32>| {
            let item = Arc::new(Field::new_list_field(DataType::Float32, false));
            FixedSizeListArray::new(
                item,
                DIM.try_into().expect("a small dimension"),
                Arc::new(Float32Array::from(values)),
                None,
            )
        };
        let values =
            |of: fn(&Protein) -> &Vec<f32>| self.rows.iter().flat_map(of).copied().collect();
        match name.split_once('_').expect("a layer").0 {
            "mean" => Arc::new(list(values(|row| &row.mean))),
            "max" => Arc::new(list(values(|row| &row.max))),
            "std" => Arc::new(list(values(|row| &row.std))),
            _ => {
                let residues = list(values(|row| &row.residues));
                let lengths = self.rows.iter().map(|row| row.residues.len() / DIM);
                let item = Field::new_list_field(residues.data_type().clone(), false);
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::new(
                    Arc::new(item),
                    offsets,
                    Arc::new(residues),
                    None,
                ))
            }
        }
    }
}
