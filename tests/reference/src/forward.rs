//! The forward pass.

use crate::heads::{contacts, logits};
use crate::matrix::{add, dot, linear, reals, sum};
use crate::{Checkpoint, Matrix, Real, gelu};

const MASK: u8 = 32;
/// The share of tokens that were masked in training: 80 % of 15 %.
const MASKED_IN_TRAINING: f64 = 0.15 * 0.8;

/// The model of a checkpoint, computed in `T`.
#[derive(Clone, Debug)]
pub struct Reference<T> {
    checkpoint: Checkpoint,
    gelu: fn(f64) -> f64,
    numbers: std::marker::PhantomData<T>,
}

/// The outputs for a sequence of `T` tokens, `L` of them residues.
#[derive(Clone, Debug)]
pub struct Outputs<T> {
    /// fair-esm's `representations`, `(T, hidden)` each: the scaled embedding, the residual stream after each layer, and for
    /// the last layer the output of the final `LayerNorm`.
    pub layers: Vec<Matrix<T>>,
    /// `(T, 33)`
    pub logits: Matrix<T>,
    /// Probabilities, `(L, L)`.
    pub contacts: Matrix<T>,
}

impl<T: Real> Reference<T> {
    /// A model with these weights.
    pub fn new(checkpoint: Checkpoint) -> Self {
        Self {
            checkpoint,
            gelu,
            numbers: std::marker::PhantomData,
        }
    }

    /// Replaces the activation.
    #[must_use]
    pub fn with_gelu(self, gelu: fn(f64) -> f64) -> Self {
        Self { gelu, ..self }
    }

    /// Computes a sequence, `<cls> residues <eos>`.
    ///
    /// # Panics
    /// If a tensor is missing.
    pub fn forward(&self, tokens: &[u8]) -> Outputs<T> {
        let mut x = self.embedding(tokens);
        let mut layers = vec![x.clone()];
        let mut maps = Vec::new();
        for layer in 0..self.checkpoint.layers {
            let layer = format!("encoder.layer.{layer}");
            let normed = self.norm(&format!("{layer}.attention.LayerNorm"), &x);
            let mixed = self.attention(&layer, &normed, &mut maps);
            add(
                &mut x,
                &self.linear(&format!("{layer}.attention.output.dense"), &mixed),
            );
            let normed = self.norm(&format!("{layer}.LayerNorm"), &x);
            let mut wide = self.linear(&format!("{layer}.intermediate.dense"), &normed);
            for value in wide.iter_mut().flatten() {
                *value = T::constant((self.gelu)(value.double()));
            }
            add(
                &mut x,
                &self.linear(&format!("{layer}.output.dense"), &wide),
            );
            layers.push(x.clone());
        }
        let last = self.norm("encoder.emb_layer_norm_after", &x);
        let outputs = Outputs {
            logits: logits(self, &last),
            contacts: contacts(&self.checkpoint, &maps),
            layers: Vec::new(),
        };
        layers[self.checkpoint.layers] = last;
        Outputs { layers, ..outputs }
    }

    /// With token dropout, the row of `<mask>` is zero, and the others are scaled by the unmasked share in training over the
    /// unmasked share of the sequence.
    fn embedding(&self, tokens: &[u8]) -> Matrix<T> {
        let words = self.checkpoint.tensor("embeddings.word_embeddings.weight");
        let masks = tokens
            .iter()
            .copied()
            .filter(|&token| token == MASK)
            .count();
        let observed = 1.0 - masks as f64 / tokens.len() as f64;
        let scale = |token: u8| match (self.checkpoint.token_dropout, token) {
            (false, _) => T::one(),
            (true, MASK) => T::zero(),
            (true, _) => T::constant((1.0 - MASKED_IN_TRAINING) / observed),
        };
        let row = |&token: &u8| {
            let word = &words[usize::from(token) * self.checkpoint.hidden..];
            let word = word[..self.checkpoint.hidden].iter();
            word.map(|&value| T::from_f32(value) * scale(token))
                .collect()
        };
        tokens.iter().map(row).collect()
    }

    /// Returns the mix of values of each token. Adds the `(T, T)` map of each head to `maps`.
    fn attention(&self, layer: &str, x: &Matrix<T>, maps: &mut Vec<Matrix<T>>) -> Matrix<T> {
        let project = |what: &str| self.linear(&format!("{layer}.attention.self.{what}"), x);
        let inv_freq = format!("{layer}.attention.self.rotary_embeddings.inv_freq");
        let inv_freq = self.checkpoint.tensor(&inv_freq);
        let (queries, keys, values) = (project("query"), project("key"), project("value"));
        let width = self.checkpoint.hidden / self.checkpoint.heads;
        let scale = T::constant((width as f64).powf(-0.5));
        let mut mixed = vec![vec![T::zero(); self.checkpoint.hidden]; x.len()];
        for head in 0..self.checkpoint.heads {
            let own = head * width..(head + 1) * width;
            let rotated = |rows: &Matrix<T>| -> Matrix<T> {
                let rows = rows.iter().enumerate();
                rows.map(|(position, row)| rotate(&row[own.clone()], position, inv_freq))
                    .collect()
            };
            let (queries, keys) = (rotated(&queries), rotated(&keys));
            let map: Matrix<T> = queries
                .iter()
                .map(|query| softmax(keys.iter().map(|key| dot(query, key) * scale).collect()))
                .collect();
            for (mixed, shares) in mixed.iter_mut().zip(&map) {
                for (share, value) in shares.iter().zip(&values) {
                    for (mixed, value) in mixed[own.clone()].iter_mut().zip(&value[own.clone()]) {
                        *mixed += *share * *value;
                    }
                }
            }
            maps.push(map);
        }
        mixed
    }

    pub(crate) fn linear(&self, module: &str, x: &Matrix<T>) -> Matrix<T> {
        let (weight, bias) = self.pair(module);
        linear(x, weight, bias)
    }

    pub(crate) fn norm(&self, module: &str, x: &Matrix<T>) -> Matrix<T> {
        let (weight, bias) = self.pair(module);
        let (weight, bias): (Vec<T>, Vec<T>) = (reals(weight), reals(bias));
        let channels = T::constant(weight.len() as f64);
        let row = |x: &Vec<T>| {
            let mean = sum(x.iter().copied()) / channels;
            let variance = sum(x.iter().map(|&value| (value - mean).powi(2))) / channels;
            let scale = T::one() / (variance + T::constant(self.checkpoint.eps)).sqrt();
            let values = x.iter().zip(&weight).zip(&bias);
            values
                .map(|((&value, &weight), &bias)| (value - mean) * scale * weight + bias)
                .collect()
        };
        x.iter().map(row).collect()
    }

    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    pub(crate) fn gelu(&self) -> fn(f64) -> f64 {
        self.gelu
    }

    fn pair(&self, module: &str) -> (&[f32], &[f32]) {
        let tensor = |what: &str| self.checkpoint.tensor(&format!("{module}.{what}"));
        (tensor("weight"), tensor("bias"))
    }
}

/// Rotates the halves of a head's channels.
fn rotate<T: Real>(channels: &[T], position: usize, inv_freq: &[f32]) -> Vec<T> {
    let half = inv_freq.len();
    let turned = channels.iter().enumerate().map(|(i, &channel)| {
        let angle = T::from_f32(position as f32) * T::from_f32(inv_freq[i % half]);
        let partner = if i < half {
            -channels[i + half]
        } else {
            channels[i - half]
        };
        channel * angle.cos() + partner * angle.sin()
    });
    turned.collect()
}

fn softmax<T: Real>(scores: Vec<T>) -> Vec<T> {
    let highest = scores.iter().copied().fold(T::neg_infinity(), T::max);
    let shares: Vec<T> = scores
        .into_iter()
        .map(|score| (score - highest).exp())
        .collect();
    let all = sum(shares.iter().copied());
    shares.into_iter().map(|share| share / all).collect()
}
