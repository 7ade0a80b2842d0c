//! Scores of substitutions, from the logits of residues.

use std::sync::LazyLock;

use plmkit_contract::{AMINO_ACIDS, Column, FIRST_RESIDUE_TOKEN, RESIDUES};

/// The columns from which `columns` are made, each once. All are of the model, but for [`Column::LogProbs`]: those are the logits of
/// [`AMINO_ACIDS`] while each residue is masked, if scores are made so. They are last.
pub(crate) fn sources(columns: &[Column], is_masked: bool) -> Vec<Column> {
    let mut sources = Vec::new();
    let source = |column: &Column| match column.source() {
        Column::Logits if is_masked && *column != Column::Logits => Column::LogProbs,
        source => source,
    };
    for source in columns.iter().map(source) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// The sources that the model computes.
pub(crate) fn model_columns(sources: &[Column]) -> &[Column] {
    let masked: &[Column] = &[Column::LogProbs];
    sources.strip_suffix(masked).unwrap_or(sources)
}

/// The tokens of [`AMINO_ACIDS`].
static TOKENS: LazyLock<[usize; AMINO_ACIDS.len()]> = LazyLock::new(|| {
    AMINO_ACIDS.map(|letter| {
        let place = RESIDUES.iter().position(|&residue| residue == letter);
        place.expect("each has a token") + usize::from(FIRST_RESIDUE_TOKEN)
    })
});

/// Picks the logits of [`AMINO_ACIDS`] from those of a residue.
pub(crate) fn amino_acid_logits(logits: &[f32]) -> [f32; AMINO_ACIDS.len()] {
    TOKENS.map(|token| logits[token])
}

/// Returns the log-probabilities of [`AMINO_ACIDS`] by their logits alone, `(residues, 20)`.
pub(crate) fn log_probs(residues: impl Iterator<Item = [f32; AMINO_ACIDS.len()]>) -> Vec<f32> {
    let log_probs = residues.flat_map(log_softmax);
    log_probs.map(|log_prob| log_prob as f32).collect()
}

/// Returns the logarithms of the probabilities of some tokens, by their logits alone.
pub(crate) fn log_softmax<const N: usize>(logits: [f32; N]) -> [f64; N] {
    let logits = logits.map(f64::from);
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
    logits.map(|logit| logit - highest - sum.ln())
}

/// Returns the mean log-probability of the residues of a protein, given as letters, by their [`log_probs`]; `None` if none of them is
/// one of the twenty, or if one of these has no log-probabilities.
pub(crate) fn log_likelihood(residues: impl Iterator<Item = u8>, log_probs: &[f32]) -> Option<f32> {
    let (mut sum, mut count) = (0.0, 0.0);
    for (letter, log_probs) in residues.zip(log_probs.chunks_exact(AMINO_ACIDS.len())) {
        if let Some(place) = AMINO_ACIDS.iter().position(|&other| other == letter) {
            sum += f64::from(log_probs[place]);
            count += 1.0;
        }
    }
    let mean = (count > 0.0).then(|| (sum / count) as f32);
    mean.filter(|mean| !mean.is_nan())
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
        let found = log_probs(
            [&logits()[..], &[-3e4; 33]]
                .into_iter()
                .map(amino_acid_logits),
        );
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
        let mut found = log_probs(std::iter::repeat_n(amino_acid_logits(&logits()), 3));
        let mean = |letters: &[u8], found: &[f32]| log_likelihood(letters.iter().copied(), found);
        let expected = f32::midpoint((2.0 / 23.0_f32).ln(), (3.0 / 23.0_f32).ln());
        assert!((mean(b"MXK", &found).expect("two") - expected).abs() < 1e-6);
        assert_eq!(mean(b"XUB", &found), None);
        found[20..40].fill(f32::NAN);
        assert!((mean(b"MXK", &found).expect("two") - expected).abs() < 1e-6);
        assert_eq!(mean(b"MKX", &found), None, "K was not masked");
    }

    #[test]
    fn a_column_of_the_model_is_computed_once() {
        let columns = [
            Column::LogProbs,
            Column::Contacts,
            Column::LogLikelihood,
            Column::Logits,
        ];
        assert_eq!(sources(&columns, false), [Column::Logits, Column::Contacts]);
        let columns = [Column::Logits, Column::LogProbs, Column::LogLikelihood];
        let masked = sources(&columns, true);
        assert_eq!(masked, [Column::Logits, Column::LogProbs]);
        assert_eq!(model_columns(&masked), [Column::Logits]);
    }
}
