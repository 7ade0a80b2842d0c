//! ESM-2 written out in f64, with no library: the reference for sequences that no golden file holds.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::support::{Pack, ROUNDING, Tiny, model_tiny, proteins, relative_error};

/// The model of fair-esm, a loop for every sum.
pub struct Oracle {
    checkpoint: Tiny,
    layers: usize,
    hidden: usize,
    heads: usize,
    gelu: fn(f64) -> f64,
}

/// `(tokens, channels)`, row by row.
type Matrix = Vec<Vec<f64>>;

impl Oracle {
    pub fn new(gelu: fn(f64) -> f64) -> Self {
        let checkpoint = Tiny::new();
        let size = |key: &str| checkpoint.config[key].as_u64().unwrap() as usize;
        Self {
            layers: size("num_hidden_layers"),
            hidden: size("hidden_size"),
            heads: size("num_attention_heads"),
            checkpoint,
            gelu,
        }
    }

    /// The outputs of layers 0 to N for one sequence, `(tokens, hidden)` each.
    pub fn layers(&self, tokens: &[u8]) -> Vec<Vec<f32>> {
        let words = self.values("esm.embeddings.word_embeddings.weight");
        let row = |token: &u8| words[usize::from(*token) * self.hidden..][..self.hidden].iter();
        let mut x: Matrix = tokens
            .iter()
            .map(|token| row(token).map(|value| value * 0.88).collect())
            .collect();
        let mut outputs = vec![flat(&x)];
        for layer in 0..self.layers {
            let layer = format!("esm.encoder.layer.{layer}");
            let mixed = self.attention(
                &layer,
                &self.norm(&format!("{layer}.attention.LayerNorm"), &x),
            );
            add(
                &mut x,
                &self.linear(&format!("{layer}.attention.output.dense"), &mixed),
            );
            let mut wide = self.linear(
                &format!("{layer}.intermediate.dense"),
                &self.norm(&format!("{layer}.LayerNorm"), &x),
            );
            wide.iter_mut()
                .flatten()
                .for_each(|value| *value = (self.gelu)(*value));
            add(
                &mut x,
                &self.linear(&format!("{layer}.output.dense"), &wide),
            );
            outputs.push(flat(&x));
        }
        outputs[self.layers] = flat(&self.norm("esm.encoder.emb_layer_norm_after", &x));
        outputs
    }

    fn attention(&self, layer: &str, x: &Matrix) -> Matrix {
        let project = |what: &str| self.linear(&format!("{layer}.attention.self.{what}"), x);
        let inv_freq = self.values(&format!(
            "{layer}.attention.self.rotary_embeddings.inv_freq"
        ));
        let (queries, keys, values) = (project("query"), project("key"), project("value"));
        let width = self.hidden / self.heads;
        let mut mixed = vec![vec![0.0; self.hidden]; x.len()];
        for head in 0..self.heads {
            let own = head * width..(head + 1) * width;
            let rotated = |rows: &Matrix| -> Matrix {
                let rows = rows.iter().enumerate();
                rows.map(|(position, row)| rotate(&row[own.clone()], position, &inv_freq))
                    .collect()
            };
            let (queries, keys) = (rotated(&queries), rotated(&keys));
            for (query, mixed) in queries.iter().zip(&mut mixed) {
                let scores: Vec<f64> = keys
                    .iter()
                    .map(|key| dot(query, key) / (width as f64).sqrt())
                    .collect();
                let highest = scores.iter().copied().fold(f64::MIN, f64::max);
                let shares: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
                let sum: f64 = shares.iter().sum();
                for (share, value) in shares.iter().zip(&values) {
                    for (mixed, value) in mixed[own.clone()].iter_mut().zip(&value[own.clone()]) {
                        *mixed += share / sum * value;
                    }
                }
            }
        }
        mixed
    }

    fn linear(&self, module: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = self.pair(module);
        let weight: Vec<&[f64]> = weight.chunks_exact(weight.len() / bias.len()).collect();
        let row = |x: &Vec<f64>| {
            weight
                .iter()
                .zip(&bias)
                .map(|(weight, bias)| dot(weight, x) + bias)
                .collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, module: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = self.pair(module);
        let channels = self.hidden as f64;
        let row = |x: &Vec<f64>| {
            let mean = x.iter().sum::<f64>() / channels;
            let variance = x.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / channels;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let values = x.iter().zip(&weight).zip(&bias);
            values
                .map(|((value, weight), bias)| (value - mean) * scale * weight + bias)
                .collect()
        };
        x.iter().map(row).collect()
    }

    fn pair(&self, module: &str) -> (Vec<f64>, Vec<f64>) {
        (
            self.values(&format!("{module}.weight")),
            self.values(&format!("{module}.bias")),
        )
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.checkpoint.parts[name]
            .values()
            .into_iter()
            .map(f64::from)
            .collect()
    }
}

/// Turns the halves of a head's channels against each other. The angle alone is rounded to f32, as everywhere.
fn rotate(channels: &[f64], position: usize, inv_freq: &[f64]) -> Vec<f64> {
    let half = inv_freq.len();
    let turned = channels.iter().enumerate().map(|(i, channel)| {
        let angle = f64::from(position as f32 * inv_freq[i % half] as f32);
        let partner = if i < half {
            -channels[i + half]
        } else {
            channels[i - half]
        };
        channel * angle.cos() + partner * angle.sin()
    });
    turned.collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut Matrix, other: &Matrix) {
    for (x, other) in x.iter_mut().flatten().zip(other.iter().flatten()) {
        *x += other;
    }
}

fn flat(x: &Matrix) -> Vec<f32> {
    x.iter().flatten().map(|value| *value as f32).collect()
}

/// GELU as it is defined: `x·Φ(x)`.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// The error function by its series, all of whose terms are positive (Abramowitz and Stegun 7.1.6).
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

#[test]
fn the_error_function_has_its_tabulated_values() {
    for (x, expected) in [
        (0.0, 0.0),
        (0.5, 0.520_499_877_813_046_5),
        (2.0, 0.995_322_265_018_952_7),
        (-1.0, -0.842_700_792_949_714_9),
    ] {
        assert!((erf(x) - expected).abs() < 1e-14, "erf({x}) = {}", erf(x));
    }
}

/// Lengths from the shortest to one where exact frequencies would be 0.16 radian off.
#[test]
fn every_layer_agrees_for_short_and_long_proteins_in_one_pack() {
    let model = model_tiny();
    let hidden = model.config().hidden;
    let mut proteins = proteins();
    proteins.sort_by_key(|protein| protein.tokens.len());
    proteins.retain(|protein| protein.tokens.len() <= 1500);
    let picked: Vec<_> = proteins
        .iter()
        .step_by(proteins.len() / 6)
        .chain(proteins.last())
        .collect();
    let pack = Pack::of(picked.iter().map(|protein| protein.tokens.as_slice()));
    let found = pack.layers(&model);
    let oracle = Oracle::new(gelu);
    let mut worst = 0.0;
    for (i, protein) in picked.iter().enumerate() {
        for (found, expected) in found.iter().zip(oracle.layers(&protein.tokens)) {
            worst = f64::max(
                worst,
                relative_error(&found[pack.values(i, hidden)], &expected, hidden),
            );
        }
    }
    let longest = picked
        .iter()
        .map(|protein| protein.tokens.len())
        .max()
        .unwrap();
    println!(
        "{} proteins of up to {longest} tokens: worst layer error {worst:.1e}",
        picked.len()
    );
    assert!(longest > 1000 && worst <= ROUNDING);
}
