//! Scores of substitutions, from the logits of residues.

use plmkit_contract::{AMINO_ACIDS, Column, FIRST_RESIDUE_TOKEN, RESIDUES};

/// The columns of the model from which `columns` are made, each once.
pub(crate) fn sources(columns: &[Column]) -> Vec<Column> {
    let mut sources = Vec::new();
    for source in columns.iter().map(|column| column.source()) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Returns the log-probabilities of [`AMINO_ACIDS`] for each residue, `(residues, 20)`, of logits `(residues, width)`. Only the
/// logits of the twenty count.
pub(crate) fn log_probs(logits: &[f32], width: usize) -> Vec<f32> {
    let tokens = AMINO_ACIDS.map(|letter| {
        let place = RESIDUES.iter().position(|&residue| residue == letter);
        place.expect("each has a token") + usize::from(FIRST_RESIDUE_TOKEN)
    });
    let residues = logits.chunks_exact(width).flat_map(|logits| {
        log_softmax(tokens.map(|token| logits[token])).map(|log_prob| log_prob as f32)
    });
    residues.collect()
}

/// Returns the logarithms of the probabilities of some tokens, by their logits alone.
pub(crate) fn log_softmax<const N: usize>(logits: [f32; N]) -> [f64; N] {
    let logits = logits.map(f64::from);
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
    logits.map(|logit| logit - highest - sum.ln())
}

/// Returns the mean log-probability of the residues of a protein, given as letters, by their [`log_probs`]; `None` if none of them is
/// one of the twenty.
pub(crate) fn log_likelihood(residues: impl Iterator<Item = u8>, log_probs: &[f32]) -> Option<f32> {
    let (mut sum, mut count) = (0.0, 0.0);
    for (letter, log_probs) in residues.zip(log_probs.chunks_exact(AMINO_ACIDS.len())) {
        if let Some(place) = AMINO_ACIDS.iter().position(|&other| other == letter) {
            sum += f64::from(log_probs[place]);
            count += 1.0;
        }
    }
    (count > 0.0).then(|| (sum / count) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of 33 tokens: 0 but for those of M and K, and large for a token that is no amino acid.
    fn logits() -> Vec<f32> {
        let mut logits = vec![0.0; 33];
        (logits[20], logits[15], logits[24]) = (2.0_f32.ln(), 3.0_f32.ln(), 90.0);
        logits
    }

    #[test]
    fn probabilities_are_over_the_twenty() {
        let found = log_probs(&[logits(), vec![-3e4; 33]].concat(), 33);
        let total = 18.0 + 2.0 + 3.0_f32;
        for (letter, share) in [(b'M', 2.0), (b'K', 3.0), (b'A', 1.0), (b'Y', 1.0)] {
            let place = AMINO_ACIDS
                .iter()
                .position(|&other| other == letter)
                .expect("one");
            assert!((found[place] - (share / total).ln()).abs() < 1e-6);
            assert!((found[20 + place] - 0.05_f32.ln()).abs() < 1e-6);
        }
    }

    #[test]
    fn the_likelihood_is_that_of_the_twenty_alone() {
        let found = log_probs(&logits().repeat(3), 33);
        let mean = |letters: &[u8]| log_likelihood(letters.iter().copied(), &found);
        let expected = f32::midpoint((2.0 / 23.0_f32).ln(), (3.0 / 23.0_f32).ln());
        assert!((mean(b"MXK").expect("two") - expected).abs() < 1e-6);
        assert_eq!(mean(b"XUB"), None);
    }

    #[test]
    fn a_column_of_the_model_is_computed_once() {
        let columns = [
            Column::LogProbs,
            Column::Contacts,
            Column::LogLikelihood,
            Column::Logits,
        ];
        assert_eq!(sources(&columns), [Column::Logits, Column::Contacts]);
    }
}
