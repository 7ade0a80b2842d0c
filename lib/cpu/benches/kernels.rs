//! The kernels on one core, for each instruction set and type that this CPU multiplies.
//!
//! An element of the throughput is a multiplication or an addition, so that Gelem/s are GFLOP/s; for layer normalisation it
//! is a value.

use std::time::Duration;

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use plmkit_cpu::{
    AttentionHead, CPU_DTYPES, Converted, Dtype, Epilogue, Isa, LayerNorm, Rows, RowsMut, Scratch,
    Weights, attention,
};

/// Rows that the encoder takes through a dense layer together.
const ROWS: usize = 192;
/// Name, channels and inner channels of models; the last has `SwiGLU`.
const MODELS: [(&str, usize, usize); 3] = [
    ("150M", 640, 2560),
    ("650M", 1280, 5120),
    ("C300M", 960, 2560),
];
const HEADS: usize = 20;

/// Each instruction set with each of `types` that it has kernels of its own for.
fn multiplications(types: &[Dtype]) -> impl Iterator<Item = (Isa, Dtype)> {
    let all = Isa::available().flat_map(|isa| types.iter().map(move |&dtype| (isa, dtype)));
    all.filter(|&(isa, dtype)| match dtype {
        Dtype::F32 => isa.for_weights(dtype) == isa,
        Dtype::Bf16 => isa.has_bf16(),
        // Those of AVX512-BF16 are those of AVX512-VNNI.
        Dtype::Int8 => isa != Isa::Avx512Bf16,
        Dtype::F16 | Dtype::Fp8 => false,
    })
}

/// Numbers evenly spread over (-1, 1), the same on every machine (Fibonacci hashing).
fn values(count: usize) -> Vec<f32> {
    let spread = (1..=count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
    spread
        .map(|spread| spread as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

fn linear(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("linear");
    // The slowest take too long for samples of growing size.
    group.sampling_mode(SamplingMode::Flat);
    for (isa, dtype) in multiplications(&CPU_DTYPES) {
        for (model, hidden, inner) in MODELS {
            let up = match model {
                "C300M" => ("up", hidden, 2 * inner, Epilogue::SwiGlu),
                _ => ("up", hidden, inner, Epilogue::Gelu),
            };
            for (layer, inputs, outputs, then) in [
                ("qkv", hidden, 3 * hidden, Epilogue::Store),
                ("out", hidden, hidden, Epilogue::Add(1.0)),
                up,
                ("down", inner, hidden, Epilogue::Add(1.0)),
            ] {
                let (weight, bias) = (values(outputs * inputs), values(outputs));
                let mut weights = Weights::pack(isa, dtype, &weight, &bias).expect("memory");
                if then == Epilogue::SwiGlu {
                    // The order of the panels does not change the time.
                    weights = weights.gated();
                }
                let mut converted = Converted::default();
                converted.grow(&weights, ROWS).expect("memory");
                let x = values(ROWS * inputs);
                let width = weights.outputs();
                let mut out = vec![0.0; ROWS * width];
                group.throughput(Throughput::Elements(2 * (ROWS * inputs * outputs) as u64));
                let id = BenchmarkId::new(format!("{isa}/{dtype:?}"), format!("{model} {layer}"));
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        let out = &mut RowsMut::new(&mut out, width);
                        weights.apply(Rows::new(&x, inputs), out, then, Some(&mut converted));
                    });
                });
            }
        }
    }
}

/// All heads of a layer; parameters are tokens x channels of a head.
fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention");
    group.sampling_mode(SamplingMode::Flat);
    let all = multiplications(&[Dtype::F32, Dtype::Bf16]);
    for (isa, dtype) in all.filter(|(isa, dtype)| *dtype == Dtype::F32 || isa.attends_in_bf16()) {
        for length in [52, 100, 300, 1000] {
            for dim in [16, 32, 64] {
                let hidden = HEADS * dim;
                let qkv = values(length * 3 * hidden);
                let mut out = vec![0.0; length * hidden];
                let mut scratch = Scratch::default();
                scratch.grow(length, dim).expect("memory");
                group.throughput(Throughput::Elements(4 * (length * length * hidden) as u64));
                let id = BenchmarkId::new(format!("{isa}/{dtype:?}"), format!("{length}x{dim}"));
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        for number in 0..HEADS {
                            attention(
                                isa,
                                dtype,
                                Rows::new(&qkv, 3 * hidden),
                                AttentionHead { number, dim },
                                0..length,
                                &mut RowsMut::new(&mut out, hidden),
                                &mut scratch,
                            );
                        }
                    });
                });
            }
        }
    }
}

fn layer_norm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layer_norm");
    for (isa, _) in multiplications(&[Dtype::F32]) {
        for (model, hidden, _) in MODELS {
            let norm = LayerNorm {
                weight: values(hidden),
                bias: values(hidden),
                eps: 1e-5,
            };
            let x = values(ROWS * hidden);
            let mut out = vec![0.0; ROWS * hidden];
            group.throughput(Throughput::Elements((ROWS * hidden) as u64));
            group.bench_function(BenchmarkId::new(isa.to_string(), model), |bencher| {
                bencher.iter(|| {
                    let out = &mut RowsMut::new(&mut out, hidden);
                    norm.apply(isa, Rows::new(&x, hidden), out);
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    // A hundred of them: little time for each.
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = linear, heads, layer_norm
}
criterion_main!(benches);
