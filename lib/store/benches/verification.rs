//! What verification costs: the time that the row digest of a file takes beside the time that decoding it takes.
//!
//! ```text
//! cargo bench -p plmkit-store --bench verification -- FILE...     shards and embeddings (.parquet), batches (.arrow)
//! ```

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::ipc::reader::FileReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use plmkit_contract::RowDigest;

const RUNS: u32 = 5;

fn main() {
    for path in std::env::args().skip(1).filter(|arg| arg != "--bench") {
        let path = Path::new(&path);
        let batches = decode(path);
        let decoding = fastest(|| drop(decode(path)));
        let mut digest = RowDigest::default();
        let hashing = fastest(|| {
            digest = RowDigest::default();
            for batch in &batches {
                digest.update(batch).expect("a type of the contract");
            }
        });
        let bytes: usize = batches.iter().map(size).sum();
        println!(
            "{}: {} rows, {:.1} MB in memory: decoding {:.1} ms, digest {:.1} ms ({:.2} GB/s)",
            path.display(),
            digest.rows(),
            bytes as f64 / 1e6,
            decoding.as_secs_f64() * 1e3,
            hashing.as_secs_f64() * 1e3,
            bytes as f64 / 1e9 / hashing.as_secs_f64(),
        );
    }
}

/// Bytes of the values in a batch.
fn size(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let sizes = columns.map(|column| column.to_data().get_slice_memory_size());
    sizes
        .map(|size| size.expect("a type of the contract"))
        .sum()
}

/// Everything in a file, by the plain reader of its format.
fn decode(path: &Path) -> Vec<RecordBatch> {
    let file = File::open(path).expect("a file");
    if path
        .extension()
        .is_some_and(|extension| extension == "arrow")
    {
        let reader = FileReader::try_new(file, None).expect("an Arrow IPC file");
        return reader.map(|batch| batch.expect("a batch")).collect();
    }
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let reader = builder.with_batch_size(1024).build().expect("a reader");
    reader.map(|batch| batch.expect("a batch")).collect()
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().expect("there are runs")
}
