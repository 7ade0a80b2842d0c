//! Files like those of a proteome.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int64Array, ListArray, RecordBatch,
    StringArray, UInt8Array, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, SchemaRef};
use plmkit_contract::{
    EmbeddingLayout, FIRST_RESIDUE_TOKEN, Labels, Provenance, RESIDUES, SequenceDigest, ShardRow,
    StoreDtype, batches_schema,
};
use plmkit_store::{BatchesWriter, EmbeddingsWriter, ShardWriter};

const PROTEINS: usize = 10_000;
/// Tokens of a pack.
const CAPACITY: usize = 16_384;
/// Channels of 650M.
const DIM: i32 = 1280;
/// 10 MiB of vectors.
const EMBEDDINGS: usize = 2048;

pub(crate) struct Protein {
    ordinal: u64,
    id: String,
    description: String,
    residues: String,
}

/// Proteins with the lengths and the composition of the example proteins. Each has residues of its own: copies would
/// compress, which proteins hardly do.
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

pub(crate) fn write_shard(path: &Path, proteins: &[Protein]) {
    let mut writer = ShardWriter::create(path, 64 << 20).expect("a file");
    for protein in proteins {
        let row = ShardRow {
            ordinal: protein.ordinal,
            id: &protein.id,
            description: Some(&protein.description),
            sequence: &protein.residues,
            length: protein.residues.len() as u32,
            start: 0,
            truncated: false,
            digest: SequenceDigest::new(protein.residues.as_bytes()),
        };
        writer.push(&row).expect("space for a row");
    }
    let finished = writer.finish(&provenance()).expect("space for a file");
    finished.publish().expect("space for a file");
}

pub(crate) fn write_batches(path: &Path, proteins: &[Protein]) {
    let mut writer = BatchesWriter::create(path, Labels::default(), &provenance()).expect("a file");
    let mut rest = proteins;
    while !rest.is_empty() {
        let mut tokens = 0;
        let fitting = rest.iter().take_while(|protein| {
            tokens += protein.residues.len() + 2;
            tokens <= CAPACITY
        });
        let (pack, after) = rest.split_at(fitting.count());
        let mut columns = keys(pack);
        columns.push(tokens_of(pack));
        let batch = RecordBatch::try_new(batches_schema(Labels::default()), columns)
            .expect("whole columns");
        writer.write(&batch).expect("space for a pack");
        rest = after;
    }
    writer.finish().expect("space for a file");
}

fn tokens_of(pack: &[Protein]) -> ArrayRef {
    let token = |residue| {
        let place = RESIDUES.iter().position(|&known| known == residue);
        FIRST_RESIDUE_TOKEN + place.expect("a residue") as u8
    };
    let tokens = pack.iter().flat_map(|protein| {
        let residues = protein.residues.bytes().map(token);
        [0].into_iter().chain(residues).chain([2])
    });
    Arc::new(ListArray::new(
        Arc::new(Field::new_list_field(DataType::UInt8, false)),
        OffsetBuffer::from_lengths(pack.iter().map(|protein| protein.residues.len() + 2)),
        Arc::new(UInt8Array::from_iter_values(tokens)),
        None,
    ))
}

pub(crate) fn write_embeddings(path: &Path, proteins: &[Protein]) {
    let layout = EmbeddingLayout {
        columns: vec!["mean_33".parse().expect("a column")],
        dim: DIM as usize,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels::default(),
    };
    let mut writer = EmbeddingsWriter::create(path, &layout).expect("a file");
    let schema = SchemaRef::clone(writer.schema());
    let mut columns = keys(&proteins[..EMBEDDINGS]);
    // Numbers in (-1, 1), whose last bits are as random as those of vectors.
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

/// The columns with which batches and embeddings begin.
fn keys(proteins: &[Protein]) -> Vec<ArrayRef> {
    let count = proteins.len();
    let digests = proteins
        .iter()
        .map(|protein| SequenceDigest::new(protein.residues.as_bytes()));
    vec![
        Arc::new(Int64Array::from_iter_values(
            proteins.iter().map(|protein| protein.ordinal.cast_signed()),
        )),
        Arc::new(StringArray::from_iter_values(
            proteins.iter().map(|protein| &protein.id),
        )),
        Arc::new(UInt32Array::from(vec![0; count])),
        Arc::new(UInt32Array::from_iter_values(
            proteins.iter().map(|protein| protein.residues.len() as u32),
        )),
        Arc::new(BooleanArray::from(vec![false; count])),
        Arc::new(StringArray::from_iter_values(
            digests.map(|digest| digest.to_string()),
        )),
    ]
}

fn provenance() -> Provenance {
    Provenance::new("bench", Vec::new())
}
