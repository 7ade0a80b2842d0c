//! Which residues the proteins of a file have: where these are unlike those of the other files, vectors may be, too.

use crate::columns::Centre;

/// The amino acids that all proteins have.
const LETTERS: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";

/// The shares of each amino acid in the sequences of a file.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    sequences: u64,
    sums: [f64; 20],
    squares: [f64; 20],
}

impl Composition {
    /// Adds a sequence of upper-case letters.
    pub fn add(&mut self, sequence: &[u8]) {
        let mut counts = [0_u32; 256];
        for &letter in sequence {
            counts[usize::from(letter)] += 1;
        }
        self.sequences += 1;
        for (place, &letter) in LETTERS.iter().enumerate() {
            let count = counts[usize::from(letter)];
            let share = f64::from(count) / sequence.len().max(1) as f64;
            self.sums[place] += share;
            self.squares[place] += share * share;
        }
    }

    /// The mean share of each residue, and its standard deviation over sequences.
    pub(crate) fn centre(&self, file: &str) -> Centre {
        let count = self.sequences.max(1) as f64;
        let moments = self.sums.iter().zip(&self.squares).map(|(sum, square)| {
            let mean = sum / count;
            let variance = (square / count - mean * mean).max(0.0);
            (mean as f32, variance.sqrt() as f32)
        });
        let (mean, spread) = moments.unzip();
        Centre {
            file: file.to_owned(),
            vectors: self.sequences,
            mean,
            spread,
            median_norm: 0.0,
        }
    }
}
