//! Contacts from attention maps (Rao et al. 2021, doi:10.1101/2020.12.15.422761), in the memory of one map.
//!
//! fair-esm stacks the maps of all layers and heads, `(layers·heads, T, T)`, removes `<cls>` and `<eos>`, makes each map
//! symmetric, `S = A + Aᵀ`, applies the average product correction, `S - r·rᵀ/s` with the row sums `r` of `S` and their
//! sum `s`, and takes the logistic regression over maps. Only the last step mixes maps, and it is a weighted sum. So this
//! module sums over maps first:
//!
//! ```text
//! Σ w(S - r·rᵀ/s)  =  (Σ wA) + (Σ wA)ᵀ - R·diag(w/s)·Rᵀ        R: (L, layers·heads), the r of all maps
//! ```
//!
//! A protein of `L` residues needs the memory of one `(L, L)` map and `R`.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::aligned::{Aligned, OutOfMemory};
use crate::attention::{MapSums, Scratch, add_maps};
use crate::team::share;
use crate::{AttentionHead, Dtype, Epilogue, Isa, Rows, RowsMut, Weights};

/// The logistic regression over attention maps.
#[derive(Debug)]
pub struct ContactHead {
    /// `(layers·heads)`, layer by layer.
    pub weight: Vec<f32>,
    /// The intercept.
    pub bias: f32,
}

/// Collects the contacts of a batch while its layers are computed.
#[derive(Debug)]
pub(crate) struct Contacts<'a> {
    head: &'a ContactHead,
    isa: Isa,
    threads: NonZeroUsize,
    /// The heads of a layer.
    heads: usize,
    /// The rows of each sequence, with `<cls>` and `<eos>`.
    sequences: Vec<Range<usize>>,
    /// `(L, L)` of each sequence: the weighted sum of the maps.
    maps: &'a mut [f32],
    /// `(L, layers·heads)` of each sequence: row sums of the symmetric maps.
    rows: Aligned,
    /// The layers that were added.
    layers: usize,
}

/// The residues that a thread computes at once. The order of sums depends on it, and not on the number of threads.
const BLOCK: usize = 96;

/// Part of a layer's work: some residues of a sequence, as queries of all heads.
struct ContactBlock<'a> {
    span: Range<usize>,
    residues: Range<usize>,
    /// `(residues, L)`
    maps: &'a mut [f32],
    /// `(residues, layers·heads)`
    rows: &'a mut [f32],
    /// `(heads, L)`: sums of the maps over these residues.
    columns: &'a mut [f32],
}

impl<'a> Contacts<'a> {
    /// Collects contacts in `out`, the `(L, L)` of each sequence in turn.
    pub(crate) fn new(
        head: &'a ContactHead,
        heads: usize,
        sequences: &[Range<usize>],
        out: &'a mut [f32],
        isa: Isa,
        threads: NonZeroUsize,
    ) -> Result<Self, OutOfMemory> {
        let residues: usize = sequences.iter().map(|span| span.len() - 2).sum();
        out.fill(0.0);
        Ok(Self {
            head,
            isa,
            threads,
            heads,
            sequences: sequences.to_vec(),
            maps: out,
            rows: Aligned::zeros(residues * head.weight.len())?,
            layers: 0,
        })
    }

    /// Adds the maps of the next layer, whose queries, keys and values are `(tokens, 3·heads·dim)` with the first two rotated.
    pub(crate) fn add(&mut self, qkv: Rows<'_>) -> Result<(), OutOfMemory> {
        let (heads, all) = (self.heads, self.head.weight.len());
        let first = self.layers * heads;
        let weights = &self.head.weight[first..first + heads];
        let lengths = self.sequences.iter().map(|span| span.len() - 2);
        let columns = lengths.map(|length| length.div_ceil(BLOCK) * heads * length);
        let mut columns = vec![0.0; columns.sum()];
        let mut blocks = Vec::new();
        let mut rest = (&mut *self.maps, &mut self.rows[..], &mut columns[..]);
        for span in &self.sequences {
            let length = span.len() - 2;
            let maps = take(&mut rest.0, length * length);
            let rows = take(&mut rest.1, length * all);
            let columns = take(&mut rest.2, length.div_ceil(BLOCK) * heads * length);
            let parts = maps
                .chunks_mut(BLOCK * length)
                .zip(rows.chunks_mut(BLOCK * all));
            let parts = parts.zip(columns.chunks_mut(heads * length));
            for (start, ((maps, rows), columns)) in (0..).step_by(BLOCK).zip(parts) {
                blocks.push(ContactBlock {
                    span: span.clone(),
                    residues: start..length.min(start + BLOCK),
                    maps,
                    rows,
                    columns,
                });
            }
        }
        let refused = Mutex::new(Ok(()));
        share(self.threads, blocks, |block| {
            if let Err(error) = block.add(self.isa, qkv, weights, first) {
                *refused.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
            }
        });
        refused
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)?;
        let (mut rows, mut columns) = (&mut self.rows[..], &mut columns[..]);
        for span in &self.sequences {
            let length = span.len() - 2;
            let rows = take(&mut rows, length * all);
            for part in take(&mut columns, length.div_ceil(BLOCK) * heads * length)
                .chunks_exact(heads * length)
            {
                for (head, sums) in part.chunks_exact(length).enumerate() {
                    let rows = rows.chunks_exact_mut(all);
                    rows.zip(sums)
                        .for_each(|(row, sum)| row[first + head] += sum);
                }
            }
        }
        self.layers += 1;
        Ok(())
    }

    /// Replaces the sums by contact probabilities.
    pub(crate) fn finish(mut self) -> Result<(), OutOfMemory> {
        let (mut maps, mut rows) = (&mut *self.maps, &mut self.rows[..]);
        for span in &self.sequences {
            let length = span.len() - 2;
            let maps = take(&mut maps, length * length);
            let rows = take(&mut rows, length * self.head.weight.len());
            finish(self.head, maps, rows, self.isa, self.threads)?;
        }
        Ok(())
    }
}

/// Takes the first `count` values off a slice.
#[allow(clippy::mut_mut, reason = "the slice itself becomes shorter")]
fn take<'s>(rest: &mut &'s mut [f32], count: usize) -> &'s mut [f32] {
    rest.split_off_mut(..count)
        .expect("there are as many values")
}

impl ContactBlock<'_> {
    /// Adds the maps of a layer, whose first head is number `first` of all.
    fn add(
        self,
        isa: Isa,
        qkv: Rows<'_>,
        weights: &[f32],
        first: usize,
    ) -> Result<(), OutOfMemory> {
        let count = self.span.len() - 2;
        let all = self.rows.len() / self.residues.len();
        let dim = qkv.width() / 3 / weights.len();
        let mut scratch = Scratch::default();
        scratch.grow(self.span.len(), dim)?;
        let width = qkv.width();
        let own = Rows::new(
            &qkv.values()[self.span.start * width..self.span.end * width],
            width,
        );
        let mut sums = vec![0.0; self.residues.len()];
        for ((number, &weight), columns) in weights
            .iter()
            .enumerate()
            .zip(self.columns.chunks_mut(count))
        {
            let into = MapSums {
                weight,
                maps: RowsMut::new(self.maps, count),
                rows: &mut sums,
                columns,
            };
            let head = AttentionHead { number, dim };
            add_maps(
                isa,
                own,
                head,
                self.residues.start + 1..self.residues.end + 1,
                into,
                &mut scratch,
            );
            let rows = self.rows.chunks_exact_mut(all);
            rows.zip(&sums)
                .for_each(|(row, sum)| row[first + number] = *sum);
        }
        Ok(())
    }
}

/// Maps the sums of a sequence, `(L, L)` and `(L, layers·heads)`, to probabilities.
fn finish(
    head: &ContactHead,
    maps: &mut [f32],
    rows: &[f32],
    isa: Isa,
    threads: NonZeroUsize,
) -> Result<(), OutOfMemory> {
    let all = head.weight.len();
    let length = rows.len() / all;
    let mut factors = vec![0.0f32; all];
    for row in rows.chunks_exact(all) {
        let sums = factors.iter_mut().zip(row);
        sums.for_each(|(sum, value)| *sum += value);
    }
    for (factor, weight) in factors.iter_mut().zip(&head.weight) {
        *factor = -weight / *factor;
    }
    let scaled = rows
        .chunks_exact(all)
        .flat_map(|row| row.iter().zip(&factors));
    let scaled: Vec<f32> = scaled.map(|(value, factor)| value * factor).collect();
    let corrections = Weights::pack(isa, Dtype::F32, &scaled, &vec![head.bias; length])?;
    symmetric(maps, length, |a, b| a + b);
    let blocks = maps.chunks_mut(BLOCK * length);
    let blocks = blocks.zip(rows.chunks(BLOCK * all)).collect();
    share(threads, blocks, |(maps, rows): (&mut [f32], &[f32])| {
        let into = &mut RowsMut::new(maps, length);
        corrections.apply(Rows::new(rows, all), into, Epilogue::Add(1.0), None);
        for value in maps {
            *value = 1.0 / (1.0 + (-*value).exp());
        }
    });
    // Symmetric to the bit: products round differently on both sides of the diagonal.
    symmetric(maps, length, |a, b| 0.5 * (a + b));
    Ok(())
}

/// Replaces each value of a square matrix, and its mirror image, by what `join` makes of both.
fn symmetric(matrix: &mut [f32], size: usize, join: impl Fn(f32, f32) -> f32) {
    for i in 0..size {
        for j in 0..=i {
            let (one, other) = (i * size + j, j * size + i);
            let joined = join(matrix[one], matrix[other]);
            (matrix[one], matrix[other]) = (joined, joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fair-esm's head in f64 for the queries, keys and values of the layers, `(tokens, 3·heads·dim)` each.
    fn written_out(
        layers: &[Vec<f32>],
        head: &ContactHead,
        heads: usize,
        dim: usize,
        span: Range<usize>,
    ) -> Vec<f64> {
        let (hidden, length) = (heads * dim, span.len() - 2);
        let mut logits = vec![f64::from(head.bias); length * length];
        for (layer, qkv) in layers.iter().enumerate() {
            for number in 0..heads {
                let value = |row: usize, part: usize, k: usize| {
                    f64::from(qkv[row * 3 * hidden + part * hidden + number * dim + k])
                };
                let map: Vec<Vec<f64>> = span
                    .clone()
                    .map(|query| {
                        let scores = span.clone().map(|key| {
                            (0..dim)
                                .map(|k| value(query, 0, k) * value(key, 1, k))
                                .sum::<f64>()
                        });
                        let scores: Vec<f64> = scores
                            .map(|score| (score / (dim as f64).sqrt()).exp())
                            .collect();
                        let sum: f64 = scores.iter().sum();
                        scores.into_iter().map(|score| score / sum).collect()
                    })
                    .collect();
                let map = |i: usize, j: usize| map[i + 1][j + 1] + map[j + 1][i + 1];
                let sums: Vec<f64> = (0..length)
                    .map(|i| (0..length).map(|j| map(i, j)).sum())
                    .collect();
                let all: f64 = sums.iter().sum();
                let weight = f64::from(head.weight[layer * heads + number]);
                for i in 0..length {
                    for j in 0..length {
                        logits[i * length + j] += weight * (map(i, j) - sums[i] * sums[j] / all);
                    }
                }
            }
        }
        logits
            .into_iter()
            .map(|logit| 1.0 / (1.0 + (-logit).exp()))
            .collect()
    }

    #[test]
    fn summing_over_maps_first_gives_the_same_contacts_with_any_threads() {
        let (layers, heads, dim) = (3, 4, 10);
        let sequences = [0..240, 240..243, 243..260];
        let mut state = 7u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 22) as f32 - 2.0
        };
        let head = ContactHead {
            weight: (0..layers * heads).map(|_| 3.0 * draw()).collect(),
            bias: -0.5,
        };
        let qkv: Vec<Vec<f32>> = (0..layers)
            .map(|_| (0..260 * 3 * heads * dim).map(|_| draw()).collect())
            .collect();
        let expected: Vec<f64> = sequences
            .iter()
            .flat_map(|span| written_out(&qkv, &head, heads, dim, span.clone()))
            .collect();
        for isa in Isa::available() {
            let results = [1, 3].map(|threads| {
                let mut out = vec![f32::NAN; expected.len()];
                let threads = NonZeroUsize::new(threads).unwrap();
                let mut contacts =
                    Contacts::new(&head, heads, &sequences, &mut out, isa, threads).unwrap();
                for qkv in &qkv {
                    contacts.add(Rows::new(qkv, 3 * heads * dim)).unwrap();
                }
                contacts.finish().unwrap();
                out
            });
            assert_eq!(results[0], results[1]);
            for (found, expected) in results[0].iter().zip(&expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-6,
                    "{isa}: {found} {expected}"
                );
            }
        }
    }
}
