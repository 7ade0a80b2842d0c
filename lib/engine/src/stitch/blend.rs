//! Blending the vectors of residues that are in several windows.

use std::ops::Range;

/// The weight of residue `residue` in a window: the number of residues to the nearer end of the window, itself included.
fn weight(window: &Range<usize>, residue: usize) -> f64 {
    (residue - window.start + 1).min(window.end - residue) as f64
}

/// Running weighted means of residue vectors over the windows that hold the residue.
///
/// Sums are in f64, where the product of an f32 and a weight is exact: a residue in one window keeps its vector to the bit. Only
/// the residues of the latest window are in memory, because no later window holds earlier ones.
#[derive(Debug)]
pub(crate) struct Blend {
    dim: usize,
    /// The first residue in memory.
    first: usize,
    /// Weighted sums: `(residues from first, dim)`.
    sums: Vec<f64>,
    /// Sums of weights: `(residues from first)`.
    weights: Vec<f64>,
}

impl Blend {
    /// Starts a protein whose vectors have `dim` values.
    pub(crate) fn new(dim: usize) -> Self {
        Self {
            dim,
            first: 0,
            sums: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Adds a window with its residue vectors, `(window.len(), dim)`. The window starts after the start of the one before it and
    /// not after its end. `done` gets the final vector of each residue before the window, in order.
    pub(crate) fn add(&mut self, window: Range<usize>, values: &[f32], done: impl FnMut(&[f32])) {
        debug_assert_eq!(values.len(), window.len() * self.dim);
        self.emit_before(window.start, done);
        let count = (window.end - self.first).max(self.weights.len());
        self.weights.resize(count, 0.0);
        self.sums.resize(count * self.dim, 0.0);
        let offset = window.start - self.first;
        let sums = self.sums[offset * self.dim..].chunks_exact_mut(self.dim);
        let vectors = values.chunks_exact(self.dim);
        let residues = window.clone().zip(vectors).zip(sums);
        for (((residue, vector), sums), total) in residues.zip(&mut self.weights[offset..]) {
            let weight = weight(&window, residue);
            *total += weight;
            for (sum, &value) in sums.iter_mut().zip(vector) {
                *sum += weight * f64::from(value);
            }
        }
    }

    /// Passes the vectors of the remaining residues to `done`.
    pub(crate) fn finish(&mut self, done: impl FnMut(&[f32])) {
        self.emit_before(self.first + self.weights.len(), done);
    }

    /// Passes the vectors of the residues before `end` to `done`, and forgets them.
    fn emit_before(&mut self, end: usize, mut done: impl FnMut(&[f32])) {
        let count = (end - self.first).min(self.weights.len());
        let mut vector = vec![0.0; self.dim];
        let sums = self.sums.chunks_exact(self.dim);
        for (sums, weight) in sums.zip(&self.weights[..count]) {
            for (value, sum) in vector.iter_mut().zip(sums) {
                *value = (sum / weight) as f32;
            }
            done(&vector);
        }
        self.sums.drain(..count * self.dim);
        self.weights.drain(..count);
        self.first = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Windows over `length` residues as fasta-shard cuts them.
    fn windows(length: usize, max: usize, overlap: usize) -> Vec<Range<usize>> {
        let stride = max - overlap;
        let count = 1 + length.saturating_sub(max).div_ceil(stride);
        let starts = (0..count).map(|window| window * stride);
        starts.map(|start| start..length.min(start + max)).collect()
    }

    fn blended(
        windows: &[Range<usize>],
        dim: usize,
        value: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let mut all = Vec::new();
        let mut blend = Blend::new(dim);
        let mut most = 0;
        for (number, window) in windows.iter().enumerate() {
            let values: Vec<f32> = window
                .clone()
                .flat_map(|residue| vec![value(number, residue); dim])
                .collect();
            blend.add(window.clone(), &values, |vector| {
                all.extend_from_slice(vector);
            });
            most = most.max(blend.weights.len());
        }
        blend.finish(|vector| all.extend_from_slice(vector));
        let longest = windows.iter().map(ExactSizeIterator::len).max();
        assert!(Some(most) <= longest, "no more is in memory than a window");
        all
    }

    fn cut() -> impl Strategy<Value = (usize, usize, usize)> {
        (1_usize..40).prop_flat_map(|max| (1_usize..200, Just(max), 0..max))
    }

    proptest! {
        #[test]
        fn a_single_window_is_itself(values in prop::collection::vec(-1e30_f32..1e30, 1..100)) {
            let mut blend = Blend::new(1);
            blend.add(0..values.len(), &values, |_| panic!("no residue lies before it"));
            let mut all = Vec::new();
            blend.finish(|vector| all.extend_from_slice(vector));
            prop_assert_eq!(all, values);
        }

        #[test]
        fn is_the_weighted_mean_over_the_windows_that_hold_a_residue((length, max, overlap) in cut()) {
            let windows = windows(length, max, overlap);
            let value = |window: usize, residue: usize| ((window * 31 + residue * 7) % 13) as f32 - 6.0;
            let found = blended(&windows, 1, value);
            prop_assert_eq!(found.len(), length);
            for (residue, &found) in found.iter().enumerate() {
                let (mut sum, mut weights) = (0.0, 0.0);
                for (number, window) in windows.iter().enumerate() {
                    if window.contains(&residue) {
                        let ends = [residue + 1 - window.start, window.end - residue];
                        let weight = ends[0].min(ends[1]) as f64;
                        sum += weight * f64::from(value(number, residue));
                        weights += weight;
                    }
                }
                let mean = (sum / weights) as f32;
                prop_assert_eq!(found.to_bits(), mean.to_bits());
            }
        }
    }

    #[test]
    fn a_residue_comes_mostly_from_the_window_in_whose_middle_it_lies() {
        // Residues 6 to 9 are in both windows, with weights 4:1, 3:2, 2:3 and 1:4.
        let found = blended(&[0..10, 6..16], 1, |window, _| window as f32);
        assert_eq!(found[5..11], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    }
}
