//! Residues tokenized per second.

use std::fs;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plmkit_contract::tokenize;

const PROTEINS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../test-data/proteins.fasta"
);

fn tokenizer(criterion: &mut Criterion) {
    let text = fs::read_to_string(PROTEINS).expect("the example proteins");
    let records = text.split('>').skip(1);
    let sequences: Vec<String> = records
        .map(|record| record.lines().skip(1).collect())
        .collect();
    let residues: usize = sequences.iter().map(String::len).sum();

    let mut tokens = Vec::new();
    let mut group = criterion.benchmark_group("tokenizer");
    group.throughput(Throughput::Elements(residues as u64));
    group.bench_function("tokenize", |bencher| {
        bencher.iter(|| {
            tokens.clear();
            for sequence in &sequences {
                tokenize(sequence.as_bytes(), &mut tokens).expect("residues");
            }
            tokens.len()
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2));
    targets = tokenizer
}
criterion_main!(benches);
