//! CPU time of writing an embeddings file: `EMBEDDINGS=FILE cargo bench -p plmkit-store --bench write`.
//!
//! The rows of a file of `gpu-embed` are repeated up to a number of residues. The last bits of values change, so that repeats do not
//! compress. Rows are written as f32 and as f16, with and without columns of lists.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float16Array, Float32Array, ListArray, RecordBatch,
};
use arrow_schema::DataType;
use half::f16;
use half::slice::HalfFloatSliceExt;
use plmkit_contract::{Column, EmbeddingLayout, Provenance, StoreDtype};
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};

/// The number of measurements of each case.
const REPEATS: usize = 3;

fn main() {
    let Some(path) = std::env::var_os("EMBEDDINGS") else {
        println!("write: EMBEDDINGS names no embeddings file, nothing is measured");
        return;
    };
    let tokens = std::env::var("TOKENS").map_or(300_000, |text| text.parse().expect("a number"));
    let (layout, batches) = read(Path::new(&path), tokens);
    let residues: u64 = batches.iter().map(residues).sum();
    for with_lists in [true, false] {
        for dtype in [StoreDtype::F32, StoreDtype::F16] {
            let layout = EmbeddingLayout {
                columns: layout
                    .columns
                    .iter()
                    .copied()
                    .filter(|column| with_lists || matches!(column, Column::Pooled { .. }))
                    .collect(),
                dtype,
                ..layout.clone()
            };
            let batches: Vec<RecordBatch> =
                batches.iter().map(|batch| cast(batch, &layout)).collect();
            let folder = tempfile::tempdir().expect("temp folder");
            for repeat in 0..REPEATS {
                let before = cpu();
                let path = folder.path().join("e.parquet");
                let mut writer = EmbeddingsWriter::create(&path, &layout).expect("create");
                for batch in &batches {
                    writer.write(batch).expect("write");
                }
                let provenance = Provenance::new("bench", Vec::new());
                writer.finish(&provenance).expect("finish");
                let bytes = path.metadata().expect("a file").len();
                let [user, system] =
                    [0, 1].map(|time| (cpu()[time] - before[time]) / residues as f64 * 1e6);
                println!(
                    "{dtype} lists {with_lists} repeat {repeat}: {:.2} CPU-s per million residues (user {user:.2}, system {system:.2}), {bytes} bytes, {residues} residues",
                    user + system
                );
            }
        }
    }
}

/// Repeats the rows of a file.
fn read(path: &Path, tokens: usize) -> (EmbeddingLayout, Vec<RecordBatch>) {
    let mut reader = EmbeddingsReader::open(path).expect("embeddings");
    let layout = reader.layout().clone();
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().expect("whole") {
        batches.push(batch);
    }
    let mut all = Vec::new();
    let mut found = 0;
    for round in 0_u32.. {
        for batch in &batches {
            if found >= tokens as u64 {
                return (layout, all);
            }
            found += residues(batch);
            let columns = batch.columns().iter().map(|column| changed(column, round));
            all.push(RecordBatch::try_new(batch.schema(), columns.collect()).expect("columns"));
        }
    }
    unreachable!("the range has no end")
}

fn residues(batch: &RecordBatch) -> u64 {
    let lengths = batch["length"].as_primitive::<arrow_array::types::UInt32Type>();
    lengths
        .values()
        .iter()
        .map(|&length| u64::from(length))
        .sum()
}

/// Changes the last bits of values, differently in each round.
fn changed(column: &ArrayRef, round: u32) -> ArrayRef {
    with_values(column, &|values| {
        let bits = |(at, value): (usize, &f32)| {
            let noise = (at as u32 ^ round).wrapping_mul(0x9e37_79b9) >> 22;
            f32::from_bits(value.to_bits() ^ noise)
        };
        Arc::new(Float32Array::from_iter_values(
            values.iter().enumerate().map(bits),
        ))
    })
}

/// Converts rows to the columns and the type of `layout`.
fn cast(batch: &RecordBatch, layout: &EmbeddingLayout) -> RecordBatch {
    let schema = layout.schema();
    let columns = schema.fields().iter().map(|field| {
        let column = &batch[field.name().as_str()];
        match layout.dtype {
            StoreDtype::F32 => Arc::clone(column),
            StoreDtype::F16 => with_values(column, &|values| {
                let mut narrow = vec![f16::ZERO; values.len()];
                narrow.convert_from_f32_slice(values);
                Arc::new(Float16Array::from(narrow))
            }),
        }
    });
    let columns = columns.collect();
    RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns")
}

/// Replaces the values in the vectors of a column.
fn with_values(column: &ArrayRef, change: &dyn Fn(&[f32]) -> ArrayRef) -> ArrayRef {
    let item = |array: &ArrayRef| {
        Arc::new(arrow_schema::Field::new_list_field(
            array.data_type().clone(),
            false,
        ))
    };
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let items = with_values(list.values(), change);
            Arc::new(ListArray::new(
                item(&items),
                list.offsets().clone(),
                items,
                None,
            ))
        }
        DataType::FixedSizeList(_, dim) => {
            let items = with_values(column.as_fixed_size_list().values(), change);
            Arc::new(FixedSizeListArray::new(item(&items), *dim, items, None))
        }
        DataType::Float32 => change(column.as_primitive::<Float32Type>().values()),
        _ => Arc::clone(column),
    }
}

/// Returns the user and system seconds of this process.
fn cpu() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let fields: Vec<&str> = fields.split(' ').collect();
    [11, 12].map(|field| fields[field].parse::<f64>().expect("a number") / 100.0)
}
