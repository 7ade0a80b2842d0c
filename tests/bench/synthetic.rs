//! Writes embeddings files with invented vectors, for tests/bench/neighbours.py: `synthetic ROWS DIM FIRST PARTS FOLDER`.
//!
//! A vector is the sum of a vector that all share, one of its family of about twenty, and its own. Ordinals and ids begin at FIRST: files
//! with other numbers have other vectors of the same families.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field};
use plmkit_contract::{
    Column, EmbeddingLayout, Labels, Pooling, Provenance, RowKey, RowsBuilder, SequenceDigest,
    StoreDtype,
};
use plmkit_store::EmbeddingsWriter;

const FAMILIES: u64 = 5000;
const BATCH_ROWS: u64 = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rows, dim, first, parts, folder] = &arguments[..] else {
        return Err("expected ROWS DIM FIRST PARTS FOLDER".into());
    };
    let (rows, dim): (u64, usize) = (rows.parse()?, dim.parse()?);
    let (first, parts): (u64, u64) = (first.parse()?, parts.parse()?);
    let folder = Path::new(folder).join("embeddings");
    fs::create_dir_all(&folder)?;
    for part in 0..parts {
        let [start, end] = [part, part + 1].map(|part| first + rows * part / parts);
        let path = folder.join(format!("part-{part:05}.parquet"));
        write(&path, dim, start, end)?;
    }
    Ok(())
}

fn write(path: &Path, dim: usize, start: u64, end: u64) -> Result<(), Box<dyn Error>> {
    let layout = EmbeddingLayout {
        columns: vec![Column::Pooled {
            pool: Pooling::Mean,
            layer: 33,
        }],
        dim,
        logits: plmkit_contract::VOCABULARY,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels::default(),
    };
    let mut writer = EmbeddingsWriter::create(path, &layout)?;
    let shared = noise(u64::MAX, dim);
    for begin in (start..end).step_by(BATCH_ROWS as usize) {
        let mut keys = RowsBuilder::of_keys();
        let mut values = Vec::new();
        for ordinal in begin..end.min(begin + BATCH_ROWS) {
            let id = format!("P{ordinal:09}");
            keys.push(&RowKey {
                ordinal,
                id: &id,
                start: 0,
                length: 300,
                truncated: false,
                digest: SequenceDigest::new(id.as_bytes()),
                n_windows: 1,
            });
            let family = noise(u64::MAX - 1 - mixed(ordinal) % FAMILIES, dim);
            let own = noise(ordinal, dim);
            let parts = shared.iter().zip(&family).zip(&own);
            values.extend(parts.map(|((shared, family), own)| shared + 0.3 * family + 0.2 * own));
        }
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let values: ArrayRef = Arc::new(Float32Array::from(values));
        let mut columns = keys.finish();
        columns.push(Arc::new(FixedSizeListArray::new(
            item,
            i32::try_from(dim)?,
            values,
            None,
        )));
        let schema = Arc::clone(writer.schema());
        writer.write(&RecordBatch::try_new(schema, columns)?)?;
    }
    let options = Provenance::new("gpu-embed", Vec::new());
    writer.finish(&options.with("model", "synthetic").with("dtype", "f32"))?;
    Ok(())
}

/// `dim` values from -1 to 1 that follow from a number.
fn noise(number: u64, dim: usize) -> Vec<f32> {
    let values = (0..dim as u64).map(|at| mixed(mixed(number).wrapping_add(at)));
    values
        .map(|bits| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Source: `SplitMix64`, <https://prng.di.unimi.it/splitmix64.c>.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
