//! Sequences packed and reported per second.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use plmkit_pack::{PackingReport, pack};

/// The default of `pack-batches`.
const CAPACITY: u32 = 16_384;
/// Residues of a window.
const WINDOW: u32 = 1022;

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    group.sampling_mode(SamplingMode::Flat);
    for proteins in [100_000, 1_000_000] {
        let (ordinals, lengths): (Vec<u64>, Vec<u32>) = (0..proteins).flat_map(windows).unzip();
        let planned = pack(&lengths, &ordinals, CAPACITY);
        group.throughput(Throughput::Elements(lengths.len() as u64));
        group.bench_function(BenchmarkId::new("plan", proteins), |bencher| {
            bencher.iter(|| pack(&lengths, &ordinals, CAPACITY));
        });
        group.bench_function(BenchmarkId::new("report", proteins), |bencher| {
            bencher.iter(|| PackingReport::new(&planned, &lengths, CAPACITY));
        });
    }
}

/// Returns the tokens of each window of a protein, with its ordinal.
fn windows(ordinal: u64) -> impl Iterator<Item = (u64, u32)> {
    let residues = residues(ordinal);
    let starts = (0..residues).step_by(WINDOW as usize);
    starts.map(move |start| (ordinal, WINDOW.min(residues - start) + 2))
}

/// Draws the length of a protein: log-normal with a median of 290 and a mean of 360, similar to Swiss-Prot. One in 40 is longer than
/// a window.
fn residues(ordinal: u64) -> u32 {
    // The sum of twelve uniform numbers is nearly normal.
    let normal: f64 = (0..12).map(|i| uniform(12 * ordinal + i)).sum::<f64>() - 6.0;
    (290.0 * (0.65 * normal).exp()).ceil() as u32
}

/// A number below 1, the same on every machine (`SplitMix64`, Steele et al. 2014).
fn uniform(i: u64) -> f64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / 2f64.powi(64)
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = planner
}
criterion_main!(benches);
