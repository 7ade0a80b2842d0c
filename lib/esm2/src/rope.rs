//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864).

/// The base of the geometric progression of frequencies.
pub(crate) const ROPE_BASE: f32 = 10_000.0;

/// Computes frequencies for a checkpoint without: `10000^(-2i/head_dim)`, `(head_dim/2)` f32.
pub(crate) fn default_inv_freq(head_dim: usize) -> Vec<f32> {
    (0..head_dim / 2)
        .map(|i| 1.0 / ROPE_BASE.powf((2 * i) as f32 / head_dim as f32))
        .collect()
}

/// Returns the stored row of a query or key projection for row `row` in memory, where channel `i + head_dim/2` of a head follows
/// channel `i`. fair-esm rotates the two together, and neighbours are a complex number.
pub(crate) fn unpaired(row: usize, head_dim: usize) -> usize {
    let channel = row % head_dim;
    row - channel + channel % 2 * (head_dim / 2) + channel / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_frequencies_fall_from_1_by_equal_factors() {
        assert_eq!(default_inv_freq(8), [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn the_halves_of_each_head_are_interleaved() {
        let rows: Vec<usize> = (0..12).map(|row| unpaired(row, 6)).collect();
        assert_eq!(rows, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }
}
