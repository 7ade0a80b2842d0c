//! Compares each kernel of each instruction set of this CPU with the same computation in f64.

use plmkit_cpu::{
    AttentionHead, CPU_DTYPES, Converted, Dtype, Epilogue, Isa, LayerNorm, Rotations, Rows,
    RowsMut, Scratch, Weights, attention, widen,
};

/// Pseudo-random numbers between -1 and 1, the same in every run.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The largest difference, relative to the largest expected value.
fn error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected
        .iter()
        .fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
    let differences = found.iter().zip(expected).map(|(&found, expected)| {
        let difference = (f64::from(found) - expected).abs();
        if difference.is_nan() {
            f64::INFINITY
        } else {
            difference
        }
    });
    differences.fold(0.0, f64::max) / largest
}

fn gelu(x: f64) -> f64 {
    x / 2.0 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// `x·Wᵀ + b` in f64: `(rows, outputs)`.
fn products(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f64> {
    let inputs = weight.len() / bias.len();
    let outputs = || weight.chunks(inputs).zip(bias);
    let sum = |row: &[f32], weight: &[f32]| -> f64 {
        let pairs = row.iter().zip(weight);
        pairs.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
    };
    x.chunks(inputs)
        .flat_map(|row| outputs().map(move |(weight, &bias)| sum(row, weight) + f64::from(bias)))
        .collect()
}

/// A dense layer of the rows of `x`, applied to `out`.
fn dense(weights: &Weights, x: &[f32], then: Epilogue, mut out: Vec<f32>) -> Vec<f32> {
    let outputs = weights.outputs();
    let x = Rows::new(x, x.len() * outputs / out.len());
    let mut converted = Converted::default();
    converted.grow(weights, x.rows()).expect("memory");
    let into = &mut RowsMut::new(&mut out, outputs);
    weights.apply(x, into, then, Some(&mut converted));
    out
}

#[test]
fn dense_layers_of_any_shape() {
    for isa in Isa::available() {
        for (rows, inputs, outputs) in [
            (1, 1, 1),
            (5, 24, 33),
            (12, 64, 64),
            (31, 40, 70),
            (200, 128, 96),
            // Taken up in several passes.
            (200, 2560, 40),
            (80, 5120, 16),
            (30, 2601, 24),
        ] {
            let x = numbers(1, rows * inputs);
            // Those of bfloat16, which are multiplied in f32 where they are widened.
            let rounded = |value: f32| f32::from_bits(value.to_bits() >> 16 << 16);
            let weight = numbers(2, outputs * inputs).into_iter().map(rounded);
            let weight: Vec<f32> = weight.collect();
            let bias = numbers(3, outputs);
            let there = numbers(4, rows * outputs);
            let dtypes = [Some(Dtype::F32), (!isa.has_bf16()).then_some(Dtype::Bf16)];
            let thens = [
                Epilogue::Store,
                Epilogue::Gelu,
                Epilogue::Add(1.0),
                Epilogue::Add(0.7),
            ];
            for (dtype, then) in dtypes
                .into_iter()
                .flatten()
                .flat_map(|dtype| thens.map(|then| (dtype, then)))
            {
                let weights = Weights::pack(isa, dtype, &weight, &bias).expect("memory");
                let out = dense(&weights, &x, then, there.clone());
                let sums = products(&x, &weight, &bias);
                let expected: Vec<f64> = sums
                    .into_iter()
                    .zip(&there)
                    .map(|(sum, &there)| match then {
                        Epilogue::Store => sum,
                        Epilogue::Gelu => gelu(sum),
                        Epilogue::Add(factor) => sum * f64::from(factor) + f64::from(there),
                        Epilogue::SwiGlu | Epilogue::Attend(_) => {
                            unreachable!("these weights have no gate")
                        }
                    })
                    .collect();
                let error = error(&out, &expected);
                assert!(
                    error < 1e-6,
                    "{isa} {dtype} {rows}x{inputs}x{outputs} {then:?}: {error:e}"
                );
            }
        }
    }
}

#[test]
fn gelu_is_exact_to_rounding_everywhere() {
    let xs: Vec<f32> = (-12_000..=12_000)
        .map(|i| i as f32 / 1000.0)
        .chain([-1e30, -100.0, 100.0, 1e-30])
        .collect();
    for isa in Isa::available() {
        let weights = Weights::pack(isa, Dtype::F32, &[1.0], &[0.0]).expect("memory");
        let out = dense(&weights, &xs, Epilogue::Gelu, vec![0.0; xs.len()]);
        for (&x, &found) in xs.iter().zip(&out) {
            let expected = gelu(f64::from(x));
            // What 1 + erf loses where erf is near -1.
            let allowed = 2e-7 * f64::from(x.abs()).min(8.0).max(expected.abs());
            assert!(
                (f64::from(found) - expected).abs() <= allowed,
                "{isa} {x}: {found:e}, expected {expected:e}"
            );
        }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Gated weights of a matrix with the rows of the gate first.
fn gated(isa: Isa, dtype: Dtype, weight: &[f32], bias: &[f32]) -> Weights {
    let inputs = weight.len() / bias.len();
    let rows = weight.chunks(inputs);
    let rows = rows.map(|row| row.iter().flat_map(|value| value.to_le_bytes()).collect());
    let rows: Vec<Vec<u8>> = rows.collect();
    let zeros = Weights::zeros(isa, dtype, inputs, bias);
    let mut weights = zeros.expect("memory").gated();
    for mut panel in weights.panels() {
        let rows: Vec<_> = panel
            .outputs()
            .map(|row| (Dtype::F32, &rows[row][..]))
            .collect();
        panel.pack(&rows);
    }
    weights
}

/// A gate multiplies the input that is `width` rows below it, in every type and for any rows.
#[test]
fn gates_multiply_their_inputs() {
    for isa in Isa::available() {
        for dtype in CPU_DTYPES {
            for (rows, inputs, width) in [(1, 1, 16), (31, 40, 48), (80, 320, 256)] {
                let x = numbers(21, rows * inputs);
                let weight = numbers(22, 2 * width * inputs);
                let bias = numbers(23, 2 * width);
                let weights = gated(isa, dtype, &weight, &bias);
                assert_eq!(weights.outputs(), width);
                let apply = |weights: &Weights, x: &[f32], then| {
                    let mut converted = Converted::default();
                    let rows = x.len() / inputs;
                    converted.grow(weights, rows).expect("memory");
                    let mut out = vec![f32::NAN; rows * weights.outputs()];
                    let into = &mut RowsMut::new(&mut out, weights.outputs());
                    weights.apply(Rows::new(x, inputs), into, then, Some(&mut converted));
                    out
                };
                let found = apply(&weights, &x, Epilogue::SwiGlu);
                let plain = Weights::pack(isa, dtype, &weight, &bias).expect("memory");
                let sums = match dtype {
                    Dtype::F32 => products(&x, &weight, &bias),
                    _ => apply(&plain, &x, Epilogue::Store)
                        .into_iter()
                        .map(f64::from)
                        .collect(),
                };
                let rows_of_sums = sums.chunks(2 * width);
                let expected: Vec<f64> = rows_of_sums
                    .flat_map(|sums| (0..width).map(|at| silu(sums[at]) * sums[width + at]))
                    .collect();
                let error = error(&found, &expected);
                assert!(
                    error < 1e-6,
                    "{isa} {dtype:?} {rows}x{inputs}x{width}: {error:e}"
                );
                let last = apply(&weights, &x[(rows - 1) * inputs..], Epilogue::SwiGlu);
                assert!(last == found[(rows - 1) * width..], "{isa} {dtype:?}");
            }
        }
    }
}

#[test]
fn silu_is_exact_to_rounding_everywhere() {
    let xs: Vec<f32> = (-12_000..=12_000)
        .map(|i| i as f32 / 100.0)
        .chain([-1e20, 1e20, -1e-30, 0.0])
        .collect();
    for isa in Isa::available() {
        // The gate is x, its input 1.
        let (mut weight, mut bias) = (vec![1.0; 32], vec![0.0; 32]);
        weight[16..].fill(0.0);
        bias[16..].fill(1.0);
        let weights = gated(isa, Dtype::F32, &weight, &bias);
        let out = dense(&weights, &xs, Epilogue::SwiGlu, vec![0.0; 16 * xs.len()]);
        for (&x, found) in xs.iter().zip(out.chunks(16)) {
            let expected = silu(f64::from(x));
            let allowed = 2e-7 * expected.abs().max(f64::from(x.abs()).min(1.0));
            let error = (f64::from(found[0]) - expected).abs();
            assert!(
                error <= allowed,
                "{isa} {x}: {}, expected {expected:e}",
                found[0]
            );
        }
    }
}

/// In the middle of wider rows, to the bit as alone, and nothing beside it is touched.
#[test]
fn layer_norm_in_place_of_some_columns() {
    let (width, stride) = (40, 3 * 40);
    let x = numbers(24, 5 * stride);
    let norm = LayerNorm {
        weight: numbers(25, width),
        bias: vec![0.0; width],
        eps: 1e-5,
    };
    for isa in Isa::available() {
        let mut found = x.clone();
        norm.apply_in_place(isa, &mut RowsMut::new(&mut found, stride), width);
        for (found, x) in found.chunks(stride).zip(x.chunks(stride)) {
            let mut expected = x.to_vec();
            let own = Rows::new(&x[width..2 * width], width);
            norm.apply(
                isa,
                own,
                &mut RowsMut::new(&mut expected[width..2 * width], width),
            );
            assert!(found == expected, "{isa}");
        }
    }
}

#[test]
fn layer_norm_of_a_variance_beyond_f32_is_no_number() {
    for isa in Isa::available() {
        let mut x = numbers(5, 2 * 24);
        x[3] = 1e36;
        let norm = LayerNorm {
            weight: numbers(6, 24),
            bias: numbers(7, 24),
            eps: 1e-5,
        };
        let mut out = vec![0.0; x.len()];
        norm.apply(isa, Rows::new(&x, 24), &mut RowsMut::new(&mut out, 24));
        assert!(out[..24].iter().all(|value| value.is_nan()), "{isa}");
        assert!(out[24..].iter().all(|value| value.is_finite()), "{isa}");
    }
}

#[test]
fn layer_norm_of_any_width() {
    for isa in Isa::available() {
        for width in [1, 3, 24, 64, 320, 333] {
            let mut x = numbers(5, 7 * width);
            // An outlier channel, as real checkpoints have them.
            x.iter_mut()
                .step_by(width)
                .for_each(|value| *value = *value * 10.0 + 1000.0);
            let norm = LayerNorm {
                weight: numbers(6, width),
                bias: numbers(7, width),
                eps: 1e-5,
            };
            let mut out = vec![0.0; x.len()];
            norm.apply(
                isa,
                Rows::new(&x, width),
                &mut RowsMut::new(&mut out, width),
            );
            let expected: Vec<f64> = x
                .chunks(width)
                .flat_map(|row| {
                    let count = width as f64;
                    let mean = row.iter().copied().map(f64::from).sum::<f64>() / count;
                    let squares = row.iter().map(|&value| (f64::from(value) - mean).powi(2));
                    let scale = (squares.sum::<f64>() / count + 1e-5).sqrt().recip();
                    let norm = &norm;
                    row.iter().enumerate().map(move |(i, &value)| {
                        (f64::from(value) - mean) * scale * f64::from(norm.weight[i])
                            + f64::from(norm.bias[i])
                    })
                })
                .collect();
            let error = error(&out, &expected);
            assert!(error < 5e-7, "{isa} {width}: {error:e}");
        }
    }
}

#[test]
fn rotations_turn_pairs_of_queries_and_keys_by_their_position() {
    for isa in Isa::available() {
        for head_dim in [2, 6, 16, 24, 32, 64] {
            let (heads, positions) = (3, [0, 1, 5, 700]);
            let inv_freq: Vec<f32> = (0..head_dim / 2).map(|i| 1.0 / (1.0 + i as f32)).collect();
            let rotations = Rotations::new(&inv_freq, 701);
            let width = 3 * heads * head_dim;
            let x = numbers(8, positions.len() * width);
            let mut found = x.clone();
            rotations.apply(isa, &mut RowsMut::new(&mut found, width), &positions);
            let mut expected: Vec<f64> = x.iter().copied().map(f64::from).collect();
            for (row, position) in expected.chunks_mut(width).zip(positions) {
                for pair in 0..heads * head_dim {
                    let angle = f64::from(position) * f64::from(inv_freq[pair % (head_dim / 2)]);
                    let (a, b) = (row[2 * pair], row[2 * pair + 1]);
                    row[2 * pair] = a * angle.cos() - b * angle.sin();
                    row[2 * pair + 1] = b * angle.cos() + a * angle.sin();
                }
            }
            let error = error(&found, &expected);
            assert!(error < 3e-7, "{isa} {head_dim}: {error:e}");
        }
    }
}

/// Softmax attention in f64: `(queries, dim)`.
fn written_out(qkv: &[f32], width: usize, head: AttentionHead) -> Vec<f64> {
    let (hidden, first) = (width / 3, head.number * head.dim);
    let rows: Vec<&[f32]> = qkv.chunks(width).collect();
    let part = |row: usize, part: usize, k: usize| f64::from(rows[row][part * hidden + first + k]);
    let mut mixed = Vec::new();
    for query in 0..rows.len() {
        let scores: Vec<f64> = (0..rows.len())
            .map(|key| {
                let products = (0..head.dim).map(|k| part(query, 0, k) * part(key, 1, k));
                products.sum::<f64>() / (head.dim as f64).sqrt()
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        mixed.extend((0..head.dim).map(|k| {
            let values = weights
                .iter()
                .enumerate()
                .map(|(key, weight)| weight * part(key, 2, k));
            values.sum::<f64>() / sum
        }));
    }
    mixed
}

/// Attention of all queries in f32.
fn attend_all(
    isa: Isa,
    qkv: &[f32],
    width: usize,
    head: AttentionHead,
    scratch: &mut Scratch,
) -> Vec<f32> {
    let queries = 0..qkv.len() / width;
    attended(isa, Dtype::F32, qkv, width, head, queries, scratch)
}

fn attended(
    isa: Isa,
    dtype: Dtype,
    qkv: &[f32],
    width: usize,
    head: AttentionHead,
    queries: std::ops::Range<usize>,
    scratch: &mut Scratch,
) -> Vec<f32> {
    let hidden = width / 3;
    scratch.grow(qkv.len() / width, head.dim).expect("memory");
    let mut out = vec![f32::NAN; queries.len() * hidden];
    let into = &mut RowsMut::new(&mut out, hidden);
    attention(
        isa,
        dtype,
        Rows::new(qkv, width),
        head,
        queries,
        into,
        scratch,
    );
    let first = head.number * head.dim;
    let own = first..first + head.dim;
    for row in out.chunks(hidden) {
        let others = row[..own.start].iter().chain(&row[own.end..]);
        assert!(
            others.copied().all(f32::is_nan),
            "other heads' channels are not written"
        );
    }
    out.chunks(hidden)
        .flat_map(|row| row[own.clone()].to_vec())
        .collect()
}

#[test]
fn attention_for_every_head_size_and_length() {
    for isa in Isa::available() {
        // Values of an earlier use must have no effect.
        let mut scratch = Scratch::default();
        for dim in [16, 24, 32, 64, 128, 6, 7, 1] {
            for length in [300, 1, 3, 12, 31, 64, 129, 257, 600] {
                let (heads, width) = (2, 6 * dim);
                let mut qkv = numbers(9 + length as u64, length * width);
                // Some queries attend to very few keys.
                for value in &mut qkv {
                    *value *= 3.0;
                }
                for number in 0..heads {
                    let head = AttentionHead { number, dim };
                    let found = attend_all(isa, &qkv, width, head, &mut scratch);
                    let error = error(&found, &written_out(&qkv, width, head));
                    assert!(error < 5e-6, "{isa} {length} of {dim}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn queries_and_rows_are_batch_invariant() {
    let (dim, length) = (32, 300);
    let width = 3 * dim;
    let qkv = numbers(11, length * width);
    let head = AttentionHead { number: 0, dim };
    for isa in Isa::available() {
        let mut scratch = Scratch::default();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            if dtype == Dtype::Bf16 && !isa.attends_in_bf16() {
                continue;
            }
            let all = attended(isa, dtype, &qkv, width, head, 0..length, &mut scratch);
            for queries in [0..1, 7..20, 90..113, 100..300] {
                let expected = &all[queries.start * dim..queries.end * dim];
                let shown = format!("{isa} {dtype:?} {queries:?}");
                let some = attended(isa, dtype, &qkv, width, head, queries, &mut scratch);
                assert!(some == expected, "{shown}");
            }
        }
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let (weight, bias) = (numbers(12, width * dim), numbers(13, dim));
            let weights = Weights::pack(isa, dtype, &weight, &bias).expect("memory");
            let all = dense(&weights, &qkv, Epilogue::Gelu, vec![0.0; length * dim]);
            for rows in [0..1, 7..20, 100..300] {
                let x = &qkv[rows.start * width..rows.end * width];
                let some = dense(&weights, x, Epilogue::Gelu, vec![0.0; rows.len() * dim]);
                let expected = &all[rows.start * dim..rows.end * dim];
                assert!(some == expected, "{isa} {dtype:?} {rows:?}");
            }
        }
    }
}

#[test]
fn softmax_of_very_large_scores() {
    let (dim, length) = (16, 40);
    let width = 3 * dim;
    let head = AttentionHead { number: 0, dim };
    for isa in Isa::available() {
        let mut scratch = Scratch::default();
        for (size, fits) in [(1e16, true), (1e25, false)] {
            // Every score is -1e32 or so, or does not fit into f32.
            let mut qkv = numbers(15, length * width);
            for row in qkv.chunks_mut(width) {
                row[..dim].fill(-size);
                row[dim..2 * dim].fill(size);
            }
            let found = attend_all(isa, &qkv, width, head, &mut scratch);
            if fits {
                let error = error(&found, &written_out(&qkv, width, head));
                assert!(error < 1e-5, "{isa}: {error:e}");
            } else {
                assert!(found.iter().all(|value| value.is_nan()), "{isa}");
            }
        }
    }
}

#[test]
fn nan_spreads_to_the_whole_sequence() {
    let (dim, length) = (32, 300);
    let width = 3 * dim;
    for isa in Isa::available() {
        for part in 0..3 {
            let mut qkv = numbers(14, length * width);
            qkv[200 * width + part * dim + 5] = f32::NAN;
            let head = AttentionHead { number: 0, dim };
            let found = attend_all(isa, &qkv, width, head, &mut Scratch::default());
            let spoilt = found
                .chunks(dim)
                .filter(|row| row.iter().any(|value| value.is_nan()))
                .count();
            assert_eq!(spoilt, if part == 0 { 1 } else { length }, "{isa} {part}");
        }
    }
}

#[test]
fn products_of_bfloat16_are_exact_and_their_sums_in_f32() {
    let rounded = |values: &[f32]| -> Vec<f32> {
        let rounded = values
            .iter()
            .map(|&value| half::bf16::from_f32(value).to_f32());
        rounded.collect()
    };
    let shapes = [(1, 1, 1), (5, 24, 33), (31, 40, 70), (400, 640, 96)];
    let all = Isa::available();
    for (isa, (rows, inputs, outputs)) in all.flat_map(|isa| shapes.map(|shape| (isa, shape))) {
        let (x, weight, bias) = (
            numbers(1, rows * inputs),
            numbers(2, outputs * inputs),
            numbers(3, outputs),
        );
        let weights = Weights::pack(isa, Dtype::Bf16, &weight, &bias).expect("memory");
        let mut converted = Converted::default();
        for in_f32 in [false, true] {
            let mut out = vec![0.0; rows * outputs];
            let into = &mut RowsMut::new(&mut out, outputs);
            converted.in_f32 = in_f32;
            converted.grow(&weights, rows).expect("memory");
            weights.apply(
                Rows::new(&x, inputs),
                into,
                Epilogue::Store,
                Some(&mut converted),
            );
            let inputs_as = if in_f32 || !isa.has_bf16() {
                x.clone()
            } else {
                rounded(&x)
            };
            let expected = products(&inputs_as, &rounded(&weight), &bias);
            let error = error(&out, &expected);
            assert!(
                error < 2e-6,
                "{isa} {rows}x{inputs}x{outputs} {in_f32}: {error:e}"
            );
        }
    }
}

#[test]
fn attention_in_bfloat16_loses_what_rounding_to_it_loses() {
    for isa in Isa::available().filter(|isa| isa.attends_in_bf16()) {
        let mut scratch = Scratch::default();
        for dim in [16, 24, 32, 64, 128, 6] {
            for length in [300, 1, 3, 12, 31, 64, 257, 513, 600] {
                let width = 6 * dim;
                let mut qkv = numbers(9 + length as u64, length * width);
                for value in &mut qkv {
                    *value = half::bf16::from_f32(2.0 * *value).to_f32();
                }
                for number in 0..2 {
                    let head = AttentionHead { number, dim };
                    let found =
                        attended(isa, Dtype::Bf16, &qkv, width, head, 0..length, &mut scratch);
                    let error = error(&found, &written_out(&qkv, width, head));
                    // Scaled queries and weights have 8 bits.
                    assert!(error < 1e-2, "{isa} {length} of {dim}: {error:e}");
                }
            }
        }
        let mut qkv = numbers(14, 300 * 96);
        qkv[200 * 96 + 37] = f32::NAN;
        let head = AttentionHead { number: 0, dim: 32 };
        let found = attended(isa, Dtype::Bf16, &qkv, 96, head, 0..300, &mut scratch);
        assert!(
            found
                .chunks(32)
                .all(|row| row.iter().any(|value| value.is_nan()))
        );
    }
}

/// Values in groups of 128, rounded to as many steps as 8-bit integers have.
fn in_steps(values: &[f32], inputs: usize) -> Vec<f32> {
    let groups = values.chunks(inputs).flat_map(|row| row.chunks(128));
    groups
        .flat_map(|group| {
            let largest = group.iter().fold(0f32, |most, value| most.max(value.abs()));
            let step = f64::from(largest) / 127.0;
            group.iter().map(move |&value| {
                let steps = (value * (127.0 / largest)).round_ties_even();
                if largest > 0.0 {
                    (f64::from(steps) * step) as f32
                } else {
                    0.0
                }
            })
        })
        .collect()
}

fn in_int8(isa: Isa, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let weights = Weights::pack(isa, Dtype::Int8, weight, bias).expect("memory");
    applied(&weights, x, weight.len() / bias.len())
}

/// What becomes of the rows of `x`, of `inputs` values each.
fn applied(weights: &Weights, x: &[f32], inputs: usize) -> Vec<f32> {
    let out = vec![f32::NAN; x.len() / inputs * weights.outputs()];
    dense(weights, x, Epilogue::Store, out)
}

#[test]
fn products_of_8_bit_integers_are_exact() {
    for isa in Isa::available() {
        for (rows, inputs, outputs) in [
            (1, 1, 1),
            (5, 24, 33),
            (31, 40, 70),
            (13, 129, 64),
            (400, 320, 96),
            (20, 1280, 40),
            // Taken up in several passes.
            (200, 2560, 40),
            (80, 5120, 16),
        ] {
            let mut x = numbers(1, rows * inputs);
            // A group of zeros, and rows of very different size.
            x[..inputs.min(128)].fill(0.0);
            for (row, values) in x.chunks_mut(inputs).enumerate() {
                let size = [1.0, 1e-3, 50.0][row % 3];
                for value in values {
                    *value *= size;
                }
            }
            let weight = numbers(2, outputs * inputs);
            let bias = numbers(3, outputs);
            let found = in_int8(isa, &x, &weight, &bias);
            let rounded = products(&in_steps(&x, inputs), &in_steps(&weight, inputs), &bias);
            for (found, rounded) in found.chunks(outputs).zip(rounded.chunks(outputs)) {
                let error = error(found, rounded);
                assert!(error < 1e-6, "{isa} {rows}x{inputs}x{outputs}: {error:e}");
            }
        }
    }
}

#[test]
fn rounding_to_8_bits_costs_two_digits_of_three() {
    let (rows, inputs, outputs) = (50, 640, 64);
    let (x, weight, bias) = (
        numbers(1, rows * inputs),
        numbers(2, outputs * inputs),
        numbers(3, outputs),
    );
    for isa in Isa::available() {
        let found = in_int8(isa, &x, &weight, &bias);
        let error = error(&found, &products(&x, &weight, &bias));
        assert!((1e-5..1e-2).contains(&error), "{isa}: {error:e}");
    }
}

#[test]
fn integer_products_are_batch_invariant_and_equal_for_all_instruction_sets() {
    let (rows, inputs, outputs) = (300, 200, 48);
    let (x, weight, bias) = (
        numbers(1, rows * inputs),
        numbers(2, outputs * inputs),
        numbers(3, outputs),
    );
    let mut by_lanes: Vec<(bool, Vec<f32>)> = Vec::new();
    for isa in Isa::available() {
        let all = in_int8(isa, &x, &weight, &bias);
        for own in [0..1, 7..20, 100..300] {
            let some = in_int8(
                isa,
                &x[own.start * inputs..own.end * inputs],
                &weight,
                &bias,
            );
            assert!(
                some == all[own.start * outputs..own.end * outputs],
                "{isa} {own:?}"
            );
        }
        // Without fused multiplication, sums of groups round otherwise.
        let fused = isa != Isa::Portable || cfg!(target_arch = "aarch64");
        match by_lanes.iter().find(|(known, _)| *known == fused) {
            Some((_, known)) => assert!(*known == all, "{isa}"),
            None => by_lanes.push((fused, all)),
        }
    }
    // The same on every architecture.
    if let Some((_, fused)) = by_lanes.iter().find(|(fused, _)| *fused) {
        let digest = fused.iter().fold(0u32, |digest, value| {
            (digest ^ value.to_bits()).wrapping_mul(0x0100_0193)
        });
        assert_eq!(digest, 0x936a_6553);
    }
    if cfg!(target_arch = "aarch64") && !Isa::NeonMatrix.is_available() {
        eprintln!("skipped: this CPU has no products of matrices (i8mm, bf16)");
    }
    if cfg!(target_arch = "aarch64") && !Isa::NeonDot.is_available() {
        eprintln!("skipped: this CPU has no dot products (dotprod)");
    }
}

#[test]
fn nan_in_integer_products_spreads_to_its_row_or_column() {
    let (rows, inputs, outputs) = (20, 200, 40);
    for isa in Isa::available() {
        for spoilt in [f32::NAN, f32::INFINITY] {
            let (mut x, mut weight) = (numbers(1, rows * inputs), numbers(2, outputs * inputs));
            x[7 * inputs + 150] = spoilt;
            weight[33 * inputs + 3] = spoilt;
            let found = in_int8(isa, &x, &weight, &vec![0.0; outputs]);
            for (i, value) in found.iter().enumerate() {
                let expected = i / outputs == 7 || i % outputs == 33;
                assert_eq!(value.is_nan(), expected, "{isa} {i}: {value}");
            }
        }
    }
}

#[test]
fn half_types_are_widened_as_by_the_crate_half() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = bits.iter().copied().flat_map(u16::to_le_bytes).collect();
    let widened = |stored: Dtype| {
        let mut values = vec![0.0; bits.len()];
        widen(stored, &bytes, &mut values);
        values
    };
    let f16 = bits.iter().map(|&bits| half::f16::from_bits(bits).to_f32());
    let bf16 = bits
        .iter()
        .map(|&bits| half::bf16::from_bits(bits).to_f32());
    for (found, expected) in widened(Dtype::F16)
        .into_iter()
        .zip(f16)
        .chain(widened(Dtype::Bf16).into_iter().zip(bf16))
    {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{found:e}, expected {expected:e}");
    }
}

#[test]
fn weights_of_any_stored_type_are_packed_alike() {
    for (inputs, outputs) in [(1, 1), (24, 33), (129, 70), (320, 96)] {
        let (x, weight, bias) = (
            numbers(1, 7 * inputs),
            numbers(2, outputs * inputs),
            numbers(3, outputs),
        );
        let f16 = |value: &f32| half::f16::from_f32(*value);
        let bf16 = |value: &f32| half::bf16::from_f32(*value);
        let bytes = [
            weight.iter().flat_map(|v| f16(v).to_le_bytes()).collect(),
            weight
                .iter()
                .flat_map(|v| bf16(v).to_le_bytes())
                .collect::<Vec<u8>>(),
        ];
        let widened = [
            weight.iter().map(|v| f16(v).to_f32()).collect(),
            weight
                .iter()
                .map(|v| bf16(v).to_f32())
                .collect::<Vec<f32>>(),
        ];
        for isa in Isa::available() {
            for dtype in CPU_DTYPES {
                for (i, stored) in [Dtype::F16, Dtype::Bf16].into_iter().enumerate() {
                    let rows: Vec<(Dtype, &[u8])> = bytes[i]
                        .chunks_exact(inputs * stored.bytes())
                        .map(|row| (stored, row))
                        .collect();
                    let mut packed = Weights::zeros(isa, dtype, inputs, &bias).expect("memory");
                    // In any order.
                    for mut panel in packed.panels().into_iter().rev() {
                        let rows: Vec<_> = panel.outputs().map(|row| rows[row]).collect();
                        panel.pack(&rows);
                    }
                    let expected = Weights::pack(isa, dtype, &widened[i], &bias).expect("memory");
                    let shown = format!("{isa} {dtype:?} {stored:?} {inputs}x{outputs}");
                    let expected = applied(&expected, &x, inputs);
                    assert!(applied(&packed, &x, inputs) == expected, "{shown}");
                }
            }
        }
    }
}
