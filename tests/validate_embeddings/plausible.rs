//! Embeddings with the statistics of real ones: three files of 400 proteins each, with residues, poolings and repeats.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, ListArray, UInt32Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use plmkit_contract::{
    EmbeddingLayout, Labels, ModelName, Provenance, RESIDUES, RowDigest, RowKey, SequenceDigest,
    StoreDtype,
};
use plmkit_store::read_shard;

use crate::common::command;
use crate::set::{column, write_embeddings, write_shard};

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
    pub(crate) n_windows: u32,
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
    pub(crate) store_dtype: StoreDtype,
    pub(crate) stitched: bool,
}

/// A shard before it is written. Its rows have no vectors.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) rows: Vec<Protein>,
    pub(crate) provenance: Provenance,
}

/// A set before it is written.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) files: Vec<File>,
    pub(crate) shards: Vec<Shard>,
    /// The lines of rejects.csv.
    pub(crate) rejects: String,
    /// The lines of lists of rows that were not embedded.
    pub(crate) lists: Vec<String>,
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
        n_windows: 1,
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
            n_windows: self.n_windows,
        }
    }

    /// Takes what another has in all columns, but not its key.
    pub(crate) fn take_vectors(&mut self, other: &mut Self) {
        for (own, other) in self.vectors().into_iter().zip(other.vectors()) {
            std::mem::swap(own, other);
        }
    }

    /// Takes the mean, the maximum and the deviation of another.
    pub(crate) fn take_pooled(&mut self, other: &Self) {
        self.mean.clone_from(&other.mean);
        self.max.clone_from(&other.max);
        self.std.clone_from(&other.std);
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

/// A folder of shards, their rejects, and embeddings.
pub(crate) struct Plausible {
    folder: tempfile::TempDir,
    pub(crate) sound: Data,
}

impl Plausible {
    /// A sound set.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("temp folder");
        let (mut files, mut shards) = (Vec::new(), Vec::new());
        for file in 0..FILES {
            let rows = proteins(file, 1);
            let shard = Shard::of(&rows);
            let columns = vec!["mean_6", "max_6", "std_6", "residues_6"];
            let model = ModelName {
                name: "a/model".to_owned(),
                revision: None,
            };
            files.push(File {
                rows,
                provenance: Provenance::new("gpu-embed", vec![shard.batches()])
                    .with("model", "0123456789abcdef")
                    .with("dtype", "f32")
                    .with("columns", &columns)
                    .with("store_dtype", "f32")
                    .with_model(model),
                columns,
                store_dtype: StoreDtype::F32,
                stitched: false,
            });
            shards.push(shard);
        }
        let sound = Data {
            files,
            shards,
            rejects: String::new(),
            lists: Vec::new(),
        };
        Self { folder, sound }
    }

    /// The path of a file of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a set and validates it.
    pub(crate) fn command(&self, data: &Data) -> Command {
        for name in ["embeddings", "shards", "rejects"] {
            let _ = fs::remove_dir_all(self.path(name));
            fs::create_dir(self.path(name)).expect("folder");
        }
        for (place, file) in data.files.iter().enumerate() {
            file.write(&self.path(&format!("embeddings/{place}.parquet")));
        }
        for (place, shard) in data.shards.iter().enumerate() {
            shard.write(&self.path(&format!("shards/{place}.parquet")));
        }
        let rejects = format!("ordinal,id,length,reason\n{}", data.rejects);
        fs::write(self.path("rejects/rejects.csv"), rejects).expect("write");
        for (place, list) in data.lists.iter().enumerate() {
            let path = self.path(&format!("rejects/{place}.csv"));
            fs::write(path, list_of_rows(list)).expect("write");
        }
        let line =
            "validate-embeddings embeddings --shards shards --rejects rejects --quiet --report -";
        command(self.folder.path(), line)
    }
}

/// A list of rows that were not embedded.
pub(crate) fn list_of_rows(lines: &str) -> String {
    format!("ordinal,id,length,reason,start\n{lines}")
}

impl Shard {
    fn of(rows: &[Protein]) -> Self {
        let without_vectors = rows.iter().map(|row| {
            let mut row = row.clone();
            row.vectors().into_iter().for_each(Vec::clear);
            row
        });
        Self {
            rows: without_vectors.collect(),
            provenance: Provenance::new("fasta-shard", vec![]),
        }
    }

    /// The digest of the batches that it becomes.
    pub(crate) fn batches(&self) -> String {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("shard.parquet");
        self.write(&path);
        let shard = read_shard(&path).expect("shard");
        let rows = shard.rows();
        let batch = shard.pack(rows.iter(), Labels::default()).expect("batch");
        let mut digest = RowDigest::default();
        digest.update(&batch).expect("digest");
        digest.to_string()
    }

    fn write(&self, path: &Path) {
        let rows = self
            .rows
            .iter()
            .map(|row| (row.key(), row.sequence.clone()));
        write_shard(path, rows, &self.provenance);
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
            dim: self.dim(),
            logits: plmkit_contract::VOCABULARY,
            dtype: self.store_dtype,
            stitched: self.stitched,
            labels: Labels::default(),
        };
        let mut columns: Vec<ArrayRef> = Vec::new();
        if self.stitched {
            let numbers = self.rows.iter().map(|row| row.n_windows);
            columns.push(Arc::new(UInt32Array::from_iter_values(numbers)));
        }
        columns.extend(self.columns.iter().map(|name| self.column(name)));
        let keys: Vec<RowKey> = self.rows.iter().map(Protein::key).collect();
        write_embeddings(path, &layout, &keys, columns, &self.provenance);
    }

    /// The dimension of its first vector.
    fn dim(&self) -> usize {
        self.rows.first().map_or(DIM, |row| row.mean.len())
    }

    fn column(&self, name: &str) -> ArrayRef {
        let vectors = |of: fn(&Protein) -> &Vec<f32>| {
            let values: Float32Array = self.rows.iter().flat_map(of).copied().collect();
            column(&values, self.dim(), &self.store_dtype.arrow())
        };
        match name.split_once('_').expect("a layer").0 {
            "mean" => vectors(|row| &row.mean),
            "max" => vectors(|row| &row.max),
            "std" => vectors(|row| &row.std),
            _ => {
                let residues = vectors(|row| &row.residues);
                let lengths = self.rows.iter();
                let lengths = lengths.map(|row| row.residues.len() / self.dim());
                let item = Field::new_list_field(residues.data_type().clone(), false);
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::new(Arc::new(item), offsets, residues, None))
            }
        }
    }
}
