//! Bytes of FASTA, after decompression, read per second.

use std::fs;
use std::io::Write;
use std::path::Path;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use flate2::Compression;
use flate2::write::GzEncoder;
use plmkit_kit::Stop;
use plmkit_sequence::{FastaReader, Limits};

const PROTEINS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../test-data/proteins.fasta"
);

fn fasta(criterion: &mut Criterion) {
    // The file is longer than gzip's window of 32 KiB, so that copies do not compress better.
    let text = fs::read(PROTEINS)
        .expect("the example proteins")
        .repeat(100);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (plain, gzip) = (folder.path().join("a.fasta"), folder.path().join("a.gz"));
    fs::write(&plain, &text).expect("space for a file");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&text).expect("memory");
    fs::write(&gzip, encoder.finish().expect("memory")).expect("space for a file");

    let mut group = criterion.benchmark_group("fasta");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(text.len() as u64));
    for (name, path) in [("plain", &plain), ("gzip", &gzip)] {
        group.bench_function(name, |bencher| bencher.iter(|| read(path)));
    }
}

/// Reads all records and returns their number.
fn read(path: &Path) -> u64 {
    let mut reader = FastaReader::open(path, Limits::default(), &Stop::default()).expect("a file");
    let mut records = 0;
    while let Some(block) = reader.read().expect("FASTA") {
        records += block.len() as u64;
    }
    records
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = fasta
}
criterion_main!(benches);
