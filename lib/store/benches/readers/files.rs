//! Files like those of a proteome.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{FixedSizeListArray, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use plmkit_contract::{
    EmbeddingLayout, Kind, Labels, Provenance, RowKey, RowsBuilder, SequenceDigest, ShardRow,
    StoreDtype,
};
use plmkit_store::{BatchesWriter, EmbeddingsWriter, RecordListWriter, Shard, read_shard};

const PROTEINS: usize = 10_000;
/// Tokens of a batch.
const CAPACITY: usize = 16_384;
/// Channels of the 650M model.
const DIM: i32 = 1280;
/// 10 MiB of vectors.
const EMBEDDINGS: usize = 2048;

pub(crate) struct Protein {
    ordinal: u64,
    id: String,
    description: String,
    residues: String,
}

/// Proteins with the lengths and the composition of the test proteins. All sequences differ, because copies would compress.
pub(crate) fn proteins() -> Vec<Protein> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../test-data/proteins.fasta"
    );
    let text = fs::read_to_string(path).expect("the example proteins");
    let examples: Vec<(&str, String)> = text
        .split('>')
        .skip(1)
        .map(|record| {
            let (header, lines) = record.split_once('\n').expect("a header");
            let (_id, description) = header.split_once(' ').unwrap_or_default();
            (description, lines.lines().collect())
        })
        .collect();
    let pool: Vec<char> = examples
        .iter()
        .flat_map(|(_, residues)| residues.chars())
        .collect();
    let mut draws = (0..).map(random);
    let mut draw = || draws.next().expect("no end");
    (0..PROTEINS as u64)
        .zip(examples.iter().cycle())
        .map(|(ordinal, (description, residues))| Protein {
            ordinal,
            id: format!("A0A{:07X}", draw() >> 36),
            description: (*description).to_owned(),
            residues: residues
                .chars()
                .map(|_| pool[draw() as usize % pool.len()])
                .collect(),
        })
        .collect()
}

/// The same numbers on every machine (`SplitMix64`, Steele et al. 2014).
fn random(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Protein {
    fn key(&self) -> RowKey<'_> {
        RowKey {
            ordinal: self.ordinal,
            id: &self.id,
            start: 0,
            length: self.residues.len() as u32,
            truncated: false,
            digest: SequenceDigest::new(self.residues.as_bytes()),
            n_windows: 1,
        }
    }
}

/// Writes a shard and reads it back.
pub(crate) fn write_shard(path: &Path, proteins: &[Protein]) -> Shard {
    let mut writer = RecordListWriter::create(path, Kind::Shard).expect("a file");
    for protein in proteins {
        let row = ShardRow {
            key: protein.key(),
            description: Some(&protein.description),
            sequence: &protein.residues,
        };
        writer.push(&row).expect("space for a row");
    }
    let finished = writer.finish(&provenance()).expect("space for a file");
    finished.1.finish().expect("space for a file");
    read_shard(path).expect("a shard")
}

pub(crate) fn write_batches(path: &Path, shard: &Shard) {
    let labels = Labels::default();
    let mut writer = BatchesWriter::create(path, labels, &provenance()).expect("a file");
    let rows: Vec<ShardRow> = shard.rows().iter().collect();
    let mut rest = &rows[..];
    while !rest.is_empty() {
        let mut tokens = 0;
        let fitting = rest.iter().take_while(|row| {
            tokens += row.sequence.len() + 2;
            tokens <= CAPACITY
        });
        let (pack, after) = rest.split_at(fitting.count());
        let batch = shard.pack(pack.iter().copied(), labels).expect("residues");
        writer.write(&batch).expect("space for a batch");
        rest = after;
    }
    writer.finish().expect("space for a file");
}

pub(crate) fn write_embeddings(path: &Path, proteins: &[Protein]) {
    let layout = EmbeddingLayout {
        columns: vec!["mean_33".parse().expect("a column")],
        dim: DIM as usize,
        logits: plmkit_contract::VOCABULARY,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels::default(),
    };
    let mut writer = EmbeddingsWriter::create(path, &layout).expect("a file");
    let schema = SchemaRef::clone(writer.schema());
    let mut keys = RowsBuilder::of_keys();
    for protein in &proteins[..EMBEDDINGS] {
        keys.push(&protein.key());
    }
    let mut columns = keys.finish();
    // Numbers in (-1, 1) with random last bits, like those of vectors.
    let values = (0..EMBEDDINGS as u64 * DIM as u64)
        .map(|i| (random(i) as f64 / 2f64.powi(63) - 1.0) as f32);
    columns.push(Arc::new(FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Float32, false)),
        DIM,
        Arc::new(Float32Array::from_iter_values(values)),
        None,
    )));
    let batch = RecordBatch::try_new(schema, columns).expect("whole columns");
    writer.write(&batch).expect("space for rows");
    writer.finish(&provenance()).expect("space for a file");
}

fn provenance() -> Provenance {
    Provenance::new("bench", Vec::new())
}
