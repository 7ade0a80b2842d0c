//! Whether the columns of a row agree with each other: each pooling of a layer bounds the others.

use std::collections::BTreeMap;

use plmkit_contract::{Column, EmbeddingLayout, Pooling, RowKey, StoreDtype};

use crate::check::Tallies;
use crate::checks::pooling;

/// The check `pooling` of one file: the columns that can be compared.
#[derive(Debug, Default)]
pub(crate) struct PoolingCheck {
    /// The places of the mean, the maximum, the deviation and the residues of each layer.
    layers: BTreeMap<u32, [Option<usize>; 4]>,
    dim: usize,
    /// The layers of rows that were compared.
    pub(crate) compared: u64,
    /// What rounding may change, as a share of the largest value involved.
    tolerance: f32,
}

impl PoolingCheck {
    pub(crate) fn new(layout: &EmbeddingLayout) -> Self {
        let mut layers: BTreeMap<u32, [Option<usize>; 4]> = BTreeMap::new();
        for (place, column) in layout.columns.iter().enumerate() {
            let (layer, slot) = match *column {
                Column::Pooled { pool, layer } => match pool {
                    Pooling::Mean => (layer, 0),
                    Pooling::Max => (layer, 1),
                    Pooling::Std => (layer, 2),
                    Pooling::Bos => continue,
                },
                Column::Residues(layer) => (layer, 3),
                _ => continue,
            };
            layers.entry(layer).or_default()[slot] = Some(place);
        }
        // A deviation is checked by itself; other columns need another one.
        layers.retain(|_, [mean, max, std, residues]| {
            std.is_some() || [mean, max, residues].into_iter().flatten().count() > 1
        });
        Self {
            layers,
            dim: layout.dim,
            compared: 0,
            tolerance: match layout.dtype {
                StoreDtype::F32 => 1e-4,
                StoreDtype::F16 => 4e-3,
            },
        }
    }

    /// Compares the columns of a row, all of whose values are finite.
    pub(crate) fn add(&mut self, row: &RowKey, vectors: &[&[f32]], tallies: &mut Tallies) {
        self.compared += self.layers.len() as u64;
        for (&layer, places) in &self.layers {
            let [mean, max, std, residues] = places.map(|place| place.map(|place| vectors[place]));
            let tolerance = self.tolerance;
            if let (Some(mean), Some(max)) = (mean, max)
                && let Some(d) =
                    self.first(|d| mean[d] > max[d] + tolerance * mean[d].abs().max(max[d].abs()))
            {
                let (mean, max) = (mean[d], max[d]);
                let problem = format_args!(
                    "mean_{layer} is {mean} in dimension {d}, and max_{layer} is {max}"
                );
                tallies.add(pooling::mean_above_max, row, problem);
            }
            if let Some(std) = std
                && let Some(d) = self.first(|d| std[d] < 0.0)
            {
                let problem = format_args!("std_{layer} is {} in dimension {d}", std[d]);
                tallies.add(pooling::std_negative, row, problem);
            }
            // Samuelson's inequality.
            let reach = f64::from(row.length.max(1) - 1).sqrt() as f32;
            if let (Some(mean), Some(max), Some(std)) = (mean, max, std)
                && let Some(d) = self.first(|d| {
                    let rounding = tolerance * mean[d].abs().max(max[d].abs());
                    max[d] - mean[d] > std[d] * reach * (1.0 + tolerance) + rounding
                })
            {
                let (mean, max, std) = (mean[d], max[d], std[d]);
                let problem = format_args!(
                    "std_{layer} is {std} in dimension {d}: too small for mean {mean} and max {max} of {} residues",
                    row.length
                );
                tallies.add(pooling::std_too_small, row, problem);
            }
            if let Some(residues) = residues {
                self.compare_residues(row, layer, residues, [mean, max, std], tallies);
            }
        }
    }

    /// Compares the mean, the maximum and the deviation of the residues' vectors with the columns that say so.
    fn compare_residues(
        &self,
        row: &RowKey,
        layer: u32,
        residues: &[f32],
        pooled: [Option<&[f32]>; 3],
        tallies: &mut Tallies,
    ) {
        let count = residues.len() / self.dim;
        if count == 0 || count > (row.length - row.start.min(row.length)) as usize {
            let problem = format_args!("residues_{layer}: {count} residues of {}", row.length);
            tallies.add(pooling::residue_count, row, problem);
            return;
        }
        let mut sums = vec![0.0_f64; self.dim];
        let mut largest = vec![f32::NEG_INFINITY; self.dim];
        let mut magnitude = 0.0_f32;
        for residue in residues.chunks_exact(self.dim) {
            for (d, &value) in residue.iter().enumerate() {
                sums[d] += f64::from(value);
                largest[d] = largest[d].max(value);
                magnitude = magnitude.max(value.abs());
            }
        }
        let mut squares = vec![0.0_f64; self.dim];
        for residue in residues.chunks_exact(self.dim) {
            for (d, &value) in residue.iter().enumerate() {
                squares[d] += (f64::from(value) - sums[d] / count as f64).powi(2);
            }
        }
        let means = sums.iter().map(|sum| (sum / count as f64) as f32);
        let deviations = squares.iter().map(|sum| (sum / count as f64).sqrt() as f32);
        let expected = [means.collect(), largest, deviations.collect::<Vec<f32>>()];
        for ((name, found), expected) in ["mean", "max", "std"].iter().zip(pooled).zip(expected) {
            let differs = |found: &[f32], d: usize| {
                (found[d] - expected[d]).abs() > self.tolerance * magnitude
            };
            if let Some(found) = found
                && let Some(d) = self.first(|d| differs(found, d))
            {
                let (found, expected) = (found[d], expected[d]);
                let problem = format_args!(
                    "{name}_{layer} is {found} in dimension {d}, and that of its residues is {expected}"
                );
                tallies.add(pooling::not_of_residues, row, problem);
            }
        }
    }

    /// The first dimension in which something is so.
    fn first(&self, is: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.dim).find(|&d| is(d))
    }
}
