//! The cost of reading a file, with and without verification: `decode` is the plain reader of the format, `read` the reader of this
//! crate, which first verifies every byte. Bytes are those of the values in memory.

mod files;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use plmkit_contract::{RowsBuilder, ShardRow, shard_schema};
use plmkit_kit::Stop;
use plmkit_store::{
    BatchesFile, EmbeddingsReader, Shard, encode_rows, read_shard, row_bytes, shard_encoder,
};

fn readers(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proteins = files::proteins();

    let path = folder.path().join("shard.parquet");
    let shard = files::write_shard(&path, &proteins);
    compare(criterion, "shard", &path, decode_parquet, |path| {
        read_shard(path).expect("a shard").digest.rows()
    });

    encode(criterion, &path, &shard);

    let path = folder.path().join("batches.arrow");
    files::write_batches(&path, &shard);
    compare(criterion, "batches", &path, decode_ipc, |path| {
        let file = BatchesFile::open(path, &Stop::default()).expect("batches");
        file.digest().rows()
    });

    let path = folder.path().join("embeddings.parquet");
    files::write_embeddings(&path, &proteins);
    compare(criterion, "embeddings", &path, decode_parquet, |path| {
        let mut reader = EmbeddingsReader::open(path).expect("embeddings");
        while reader.next_batch().expect("rows").is_some() {}
        reader.digest().rows()
    });
}

/// The encoder alone, which is most of the work of `fasta-shard`: rows in memory to a row group in memory.
fn encode(criterion: &mut Criterion, path: &Path, shard: &Shard) {
    let rows: Vec<ShardRow> = shard.rows().iter().collect();
    let bytes = rows.iter().map(row_bytes);
    let mut columns = RowsBuilder::new(shard_schema());
    for row in &rows {
        columns.push(row);
    }
    let columns = columns.batch();
    let encoder = shard_encoder(path).expect("an encoder");
    let mut group = criterion.benchmark_group("shard");
    group.throughput(Throughput::Bytes(bytes.sum::<usize>() as u64));
    group.bench_function("encode", |bencher| {
        bencher.iter(|| encode_rows(path, &columns, &encoder).expect("rows").bytes());
    });
}

fn compare(
    criterion: &mut Criterion,
    kind: &str,
    path: &Path,
    decode: fn(&Path) -> Vec<RecordBatch>,
    read: fn(&Path) -> u64,
) {
    let batches = decode(path);
    let bytes: usize = batches.iter().map(size).sum();
    let mut group = criterion.benchmark_group(kind);
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("decode", |bencher| bencher.iter(|| decode(path)));
    group.bench_function("read", |bencher| bencher.iter(|| read(path)));
}

/// Bytes of the values in a batch.
fn size(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let sizes = columns.map(|column| column.to_data().get_slice_memory_size());
    sizes
        .map(|size| size.expect("a type of the contract"))
        .sum()
}

fn decode_parquet(path: &Path) -> Vec<RecordBatch> {
    let file = File::open(path).expect("a file");
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let reader = builder.with_batch_size(1024).build().expect("a reader");
    reader.map(|batch| batch.expect("a batch")).collect()
}

fn decode_ipc(path: &Path) -> Vec<RecordBatch> {
    let file = File::open(path).expect("a file");
    let reader = FileReader::try_new(file, None).expect("an Arrow IPC file");
    reader.map(|batch| batch.expect("a batch")).collect()
}

/// Reads batches of an open file, each verified again.
fn batches(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("batches.arrow");
    let shard = files::write_shard(&folder.path().join("shard.parquet"), &files::proteins());
    files::write_batches(&path, &shard);
    let file = BatchesFile::open(&path, &Stop::default()).expect("batches");
    let mut group = criterion.benchmark_group("batches");
    group.throughput(Throughput::Elements(file.len() as u64));
    group.bench_function("batches", |bencher| {
        bencher.iter(|| {
            let batches = (0..file.len()).map(|index| file.batch(index).expect("a batch"));
            batches.map(|pack| pack.tokens().len()).sum::<usize>()
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = readers, batches
}
criterion_main!(benches);
