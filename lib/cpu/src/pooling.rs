//! Pools the vectors of a sequence's residues to one vector.

use plmkit_contract::Pooling;

use crate::Rows;

/// Pools `x`, the `(tokens, hidden)` of a sequence with `<cls>` and `<eos>`, over its residues: `out`, `(hidden)`. Sums are f64.
pub(crate) fn pool(x: Rows<'_>, pooling: Pooling, out: &mut [f32]) {
    let width = out.len();
    let residues = || x.values()[width..(x.rows() - 1) * width].chunks_exact(width);
    match pooling {
        Pooling::Mean => store(out, &mean(residues(), width)),
        Pooling::Max => {
            out.fill(f32::NEG_INFINITY);
            for row in residues() {
                for (most, &value) in out.iter_mut().zip(row) {
                    // NaN stays; `max` would drop it.
                    if value > *most || value.is_nan() {
                        *most = value;
                    }
                }
            }
        }
        Pooling::Std => {
            let mean = mean(residues(), width);
            let mut squares = vec![0.0; width];
            for row in residues() {
                for ((sum, &value), mean) in squares.iter_mut().zip(row).zip(&mean) {
                    *sum += (f64::from(value) - mean).powi(2);
                }
            }
            // Divided by n: a single residue has the deviation 0 instead of 0/0.
            let count = residues().len() as f64;
            for sum in &mut squares {
                *sum = (*sum / count).sqrt();
            }
            store(out, &squares);
        }
        Pooling::Bos => out.copy_from_slice(&x.values()[..width]),
    }
}

/// Returns the mean of rows, `(width)`.
fn mean<'a>(rows: impl ExactSizeIterator<Item = &'a [f32]>, width: usize) -> Vec<f64> {
    let count = rows.len() as f64;
    let mut sums = vec![0.0; width];
    for row in rows {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(value);
        }
    }
    for sum in &mut sums {
        *sum /= count;
    }
    sums
}

fn store(out: &mut [f32], values: &[f64]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = value as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of `<cls>` and `<eos>` would change every pooling that included them.
    const HIDDEN: [f32; 14] = [
        90.0, -90.0, // <cls>
        1.0, 10.0, //
        2.0, 20.0, //
        91.0, -91.0, // <eos>
        80.0, -80.0, // <cls>
        5.0, -7.0, // the only residue
        81.0, -81.0, // <eos>
    ];

    fn pooled(by: Pooling) -> Vec<f32> {
        let of = |values| {
            let mut out = [f32::NAN; 2];
            pool(Rows::new(values, 2), by, &mut out);
            out
        };
        [of(&HIDDEN[..8]), of(&HIDDEN[8..])].concat()
    }

    #[test]
    fn pooling_is_over_residues_only() {
        assert_eq!(pooled(Pooling::Mean), [1.5, 15.0, 5.0, -7.0]);
        assert_eq!(pooled(Pooling::Max), [2.0, 20.0, 5.0, -7.0]);
        assert_eq!(pooled(Pooling::Std), [0.5, 5.0, 0.0, 0.0]);
        assert_eq!(pooled(Pooling::Bos), [90.0, -90.0, 80.0, -80.0]);
    }

    #[test]
    fn the_mean_of_many_large_values_keeps_their_digits() {
        let hidden = vec![1000.1f32; 40_002];
        for (by, expected) in [(Pooling::Mean, 1000.1), (Pooling::Std, 0.0)] {
            let mut out = [f32::NAN];
            pool(Rows::new(&hidden, 1), by, &mut out);
            assert_eq!(out, [expected]);
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        let hidden = [0.0, 1.0, f32::NAN, 2.0, 0.0];
        for by in [Pooling::Mean, Pooling::Max, Pooling::Std] {
            let mut out = [0.0];
            pool(Rows::new(&hidden, 1), by, &mut out);
            assert!(out[0].is_nan());
        }
    }
}
