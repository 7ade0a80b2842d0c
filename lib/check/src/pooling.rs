//! Whether the columns of a row agree with each other: each pooling of a layer bounds the others.

use plmkit_contract::{Column, EmbeddingLayout, Pooling, RowKey, StoreDtype};

use crate::check::Check;
use crate::violation::Violations;
use serde::{Deserialize, Serialize};

/// The columns of one layer, by their place in the file.
#[derive(Debug, Default)]
struct LayerColumns {
    layer: u32,
    mean: Option<usize>,
    max: Option<usize>,
    std: Option<usize>,
    residues: Option<usize>,
}

/// The rows whose poolings contradict each other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PoolingViolations {
    compared: u64,
    mean_above_max: Violations,
    std_negative: Violations,
    std_too_small: Violations,
    not_of_residues: Violations,
    residue_count: Violations,
}

/// The columns of one file that can be compared.
#[derive(Debug, Default)]
pub(crate) struct PoolingPlan {
    layers: Vec<LayerColumns>,
    dim: usize,
    /// What rounding may change, as a share of the largest value involved.
    tolerance: f32,
}

impl PoolingPlan {
    pub(crate) fn new(layout: &EmbeddingLayout) -> Self {
        let mut layers: Vec<LayerColumns> = Vec::new();
        for (place, column) in layout.columns.iter().enumerate() {
            let Some(layer) = column.layer() else {
                continue;
            };
            let known = layers.iter().position(|known| known.layer == layer);
            let known = known.unwrap_or_else(|| {
                layers.push(LayerColumns {
                    layer,
                    ..LayerColumns::default()
                });
                layers.len() - 1
            });
            let columns = &mut layers[known];
            let slot = match column {
                Column::Residues(_) => &mut columns.residues,
                Column::Pooled { pool, .. } => match pool {
                    Pooling::Mean => &mut columns.mean,
                    Pooling::Max => &mut columns.max,
                    Pooling::Std => &mut columns.std,
                    Pooling::Bos => continue,
                },
                Column::Logits | Column::Contacts => continue,
            };
            *slot = Some(place);
        }
        Self {
            layers,
            dim: layout.dim,
            tolerance: match layout.dtype {
                StoreDtype::F32 => 1e-4,
                StoreDtype::F16 => 4e-3,
            },
        }
    }
}

impl PoolingViolations {
    /// Compares the columns of a row, all of whose values are finite.
    pub(crate) fn add(&mut self, plan: &PoolingPlan, row: &RowKey, vectors: &[&[f32]]) {
        for columns in &plan.layers {
            let vector = |place: Option<usize>| place.map(|place| vectors[place]);
            let (mean, max, std) = (
                vector(columns.mean),
                vector(columns.max),
                vector(columns.std),
            );
            let residues = vector(columns.residues);
            let layer = columns.layer;
            let pairs = [
                mean.is_some(),
                max.is_some(),
                std.is_some(),
                residues.is_some(),
            ];
            if pairs.iter().filter(|&&there| there).count() < 2 && std.is_none() {
                continue;
            }
            self.compared += 1;
            if let (Some(mean), Some(max)) = (mean, max) {
                let above = first(plan.dim, |d| {
                    mean[d] > max[d] + plan.tolerance * mean[d].abs().max(max[d].abs())
                });
                if let Some(d) = above {
                    let (mean, max) = (mean[d], max[d]);
                    let problem = format_args!(
                        "mean_{layer} is {mean} in dimension {d}, and max_{layer} is {max}"
                    );
                    self.mean_above_max.add_row(row, problem);
                }
            }
            if let Some(std) = std
                && let Some(d) = first(plan.dim, |d| std[d] < 0.0)
            {
                let problem = format_args!("std_{layer} is {} in dimension {d}", std[d]);
                self.std_negative.add_row(row, problem);
            }
            // Samuelson's inequality.
            if let (Some(mean), Some(max), Some(std)) = (mean, max, std) {
                let reach = f64::from(row.length.max(1) - 1).sqrt() as f32;
                let above = first(plan.dim, |d| {
                    let rounding = plan.tolerance * mean[d].abs().max(max[d].abs());
                    max[d] - mean[d] > std[d] * reach * (1.0 + plan.tolerance) + rounding
                });
                if let Some(d) = above {
                    let (mean, max, std) = (mean[d], max[d], std[d]);
                    let problem = format_args!(
                        "std_{layer} is {std} in dimension {d}: too small for mean {mean} and max {max} of {} residues",
                        row.length
                    );
                    self.std_too_small.add_row(row, problem);
                }
            }
            if let Some(residues) = residues {
                self.compare_residues(plan, row, layer, residues, [mean, max, std]);
            }
        }
    }

    /// Compares the mean, the maximum and the deviation of the residues' vectors with the columns that say so.
    fn compare_residues(
        &mut self,
        plan: &PoolingPlan,
        row: &RowKey,
        layer: u32,
        residues: &[f32],
        [mean, max, std]: [Option<&[f32]>; 3],
    ) {
        let count = residues.len() / plan.dim;
        if count == 0 || count > (row.length - row.start.min(row.length)) as usize {
            let problem = format_args!("residues_{layer}: {count} residues of {}", row.length);
            self.residue_count.add_row(row, problem);
            return;
        }
        let mut sums = vec![0.0_f64; plan.dim];
        let mut largest = vec![f32::NEG_INFINITY; plan.dim];
        let mut magnitude = 0.0_f32;
        for residue in residues.chunks_exact(plan.dim) {
            for (d, &value) in residue.iter().enumerate() {
                sums[d] += f64::from(value);
                largest[d] = largest[d].max(value);
                magnitude = magnitude.max(value.abs());
            }
        }
        let mut squares = vec![0.0_f64; plan.dim];
        for residue in residues.chunks_exact(plan.dim) {
            for (d, &value) in residue.iter().enumerate() {
                squares[d] += (f64::from(value) - sums[d] / count as f64).powi(2);
            }
        }
        let means: Vec<f32> = sums.iter().map(|sum| (sum / count as f64) as f32).collect();
        let deviations = squares
            .iter()
            .map(|square| (square / count as f64).sqrt() as f32);
        let deviations: Vec<f32> = deviations.collect();
        for (name, found, expected) in [
            ("mean", mean, means),
            ("max", max, largest),
            ("std", std, deviations),
        ] {
            let Some(found) = found else {
                continue;
            };
            let differs = |d: usize| (found[d] - expected[d]).abs() > plan.tolerance * magnitude;
            if let Some(d) = first(plan.dim, differs) {
                let (found, expected) = (found[d], expected[d]);
                let problem = format_args!(
                    "{name}_{layer} is {found} in dimension {d}, and that of its residues is {expected}"
                );
                self.not_of_residues.add_row(row, problem);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.mean_above_max.merge(other.mean_above_max);
        self.std_negative.merge(other.std_negative);
        self.std_too_small.merge(other.std_too_small);
        self.not_of_residues.merge(other.not_of_residues);
        self.residue_count.merge(other.residue_count);
    }

    /// The check `pooling`.
    pub(crate) fn finish(self) -> Check {
        if self.compared == 0 {
            return Check::skipped("pooling", "no layer has several columns to compare");
        }
        let kinds = [
            ("mean_above_max", self.mean_above_max),
            ("std_negative", self.std_negative),
            ("std_too_small", self.std_too_small),
            ("not_of_residues", self.not_of_residues),
            ("residue_count", self.residue_count),
        ];
        let wrong: u64 = kinds.iter().map(|(_, kind)| kind.count).sum();
        let summary = format!(
            "{} rows compared: {wrong} contradictions between columns",
            self.compared
        );
        Check::judged("pooling", summary, [("compared", self.compared)], kinds)
    }
}

/// The first dimension in which something is so.
fn first(dim: usize, is: impl Fn(usize) -> bool) -> Option<usize> {
    (0..dim).find(|&d| is(d))
}
