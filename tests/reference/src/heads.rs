//! The heads.

use crate::matrix::{linear, sum};
use crate::{Checkpoint, Matrix, Real, Reference};

/// Computes the language-model head for the output of the last layer: `(T, 33)`.
pub(crate) fn logits<T: Real>(model: &Reference<T>, x: &Matrix<T>) -> Matrix<T> {
    let mut x = model.linear("lm_head.dense", x);
    for value in x.iter_mut().flatten() {
        *value = T::constant((model.gelu())(value.double()));
    }
    let checkpoint = model.checkpoint();
    let words = checkpoint.tensor("embeddings.word_embeddings.weight");
    linear(
        &model.norm("lm_head.layer_norm", &x),
        words,
        checkpoint.tensor("lm_head.bias"),
    )
}

/// Computes contacts from the maps of all layers and heads, `(T, T)` each: removes `<cls>` and `<eos>`, makes maps symmetric,
/// applies the average product correction and a logistic regression over maps (Rao et al. 2021,
/// doi:10.1101/2020.12.15.422761).
pub(crate) fn contacts<T: Real>(checkpoint: &Checkpoint, maps: &[Matrix<T>]) -> Matrix<T> {
    let residues = maps[0].len() - 2;
    let weights = checkpoint.tensor("contact_head.regression.weight");
    let bias = checkpoint.tensor("contact_head.regression.bias")[0];
    let mut logits = vec![vec![T::from_f32(bias); residues]; residues];
    for (map, &weight) in maps.iter().zip(weights) {
        let symmetric = |i: usize, j: usize| map[i + 1][j + 1] + map[j + 1][i + 1];
        let rows: Vec<T> = (0..residues)
            .map(|i| sum((0..residues).map(|j| symmetric(i, j))))
            .collect();
        let all = sum(rows.iter().copied());
        for (i, logits) in logits.iter_mut().enumerate() {
            for (j, logit) in logits.iter_mut().enumerate() {
                *logit += T::from_f32(weight) * (symmetric(i, j) - rows[i] * rows[j] / all);
            }
        }
    }
    for logit in logits.iter_mut().flatten() {
        *logit = T::one() / (T::one() + (-*logit).exp());
    }
    logits
}
