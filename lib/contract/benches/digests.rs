//! The digests of sequences and of text. The row digest is measured with the readers of files, in `lib/store`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plmkit_contract::{ByteDigest, RESIDUES, SequenceDigest};

fn digests(criterion: &mut Criterion) {
    let bytes: Vec<u8> = RESIDUES.iter().copied().cycle().take(1 << 20).collect();
    let mut group = criterion.benchmark_group("digests");
    for residues in [100, 300, 1000] {
        group.throughput(Throughput::Bytes(residues as u64));
        group.bench_function(BenchmarkId::new("residues", residues), |bencher| {
            bencher.iter(|| SequenceDigest::new(&bytes[..residues]));
        });
    }
    // As fasta-shard does it: many sequences of various lengths.
    let sequences: Vec<&[u8]> = (100..1000).map(|i| &bytes[i..2 * i]).collect();
    let all = sequences.iter().map(|sequence| sequence.len() as u64);
    group.throughput(Throughput::Bytes(all.sum()));
    group.bench_function("sequences together", |bencher| {
        bencher.iter(|| SequenceDigest::of_all(&sequences));
    });
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function(BenchmarkId::new("text", "1 MiB"), |bencher| {
        bencher.iter(|| ByteDigest::compute(&bytes).to_string());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2));
    targets = digests
}
criterion_main!(benches);
