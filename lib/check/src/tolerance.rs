//! How far two computations of a vector may differ.

use plmkit_contract::{Column, Pooling, Provenance};

/// How far a vector may be from the same computed again in f32, as shares of its size: `docs/internals/parity.md` has what was
/// measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    /// Of the norm of a mean-pooled vector, in which the errors of many residues cancel.
    mean: f64,
    /// Of the norm of any other pooled vector.
    pooled: f64,
    /// Of the norm of all residues' vectors together; a single residue may differ by [`WORST_RESIDUE`] times as much.
    residues: f64,
    /// Of the standard deviation of all logits: the root mean square difference of one token's logits.
    logits: f64,
    /// Of the root mean square contact: the root mean square difference.
    contacts: f64,
    /// The least size that a standard deviation is compared with, as a share of the norm of the layer's mean: rounding alone makes
    /// equal residues differ.
    pub(crate) std_floor: f64,
    /// Whether values are as exact as f32: in other types, proteins that are nearly the same have the same vector.
    pub(crate) is_exact: bool,
    /// What rounding to the stored type changes a value by at most, as a share of the value.
    pub(crate) rounding: f64,
}

/// How much farther than all together the worst residue may be. In narrow types, rounding decides between two nearly equal attention
/// weights for one residue in thousands.
pub(crate) const WORST_RESIDUE: f64 = 20.0;

/// How much smaller the median difference of a file must be than the largest: single short or repetitive sequences are the farthest.
const MEDIAN: f64 = 0.25;

/// Half a unit in the last of the 11 digits of f16.
const HALF_UNIT_F16: f64 = 1.0 / 2048.0;

impl Tolerance {
    /// That of a file, by the type that it was computed in and stored in.
    pub(crate) fn of(provenance: &Provenance) -> Self {
        let dtype = provenance.text_option("dtype").unwrap_or("f32");
        let [mean, pooled, residues, logits, contacts, std_floor] = match dtype {
            "fp8" => [0.24, 0.44, 0.44, 0.9, 0.5, 1.0],
            "int8" => [0.16, 0.32, 0.36, 0.9, 0.4, 1.0],
            "bf16" => [4e-2, 0.1, 0.12, 0.2, 0.16, 1.0],
            "f16" => [6e-3, 1.2e-2, 1.6e-2, 3e-2, 2e-2, 1.0],
            _ => [2e-5, 2e-5, 2e-5, 5e-5, 2e-5, 0.1],
        };
        let is_narrow = provenance.text_option("store_dtype") == Some("f16");
        Self {
            mean,
            pooled,
            residues,
            logits,
            contacts,
            std_floor,
            is_exact: !is_narrow && dtype == "f32",
            rounding: if is_narrow { HALF_UNIT_F16 } else { 0.0 },
        }
    }

    /// The largest median difference of a file that passes.
    pub(crate) fn of_median(&self, column: Column) -> f64 {
        MEDIAN * self.of_each(column)
    }

    /// The largest difference that passes in a column.
    pub(crate) fn of_each(&self, column: Column) -> f64 {
        match column {
            Column::Pooled {
                pool: Pooling::Mean,
                ..
            } => self.mean,
            Column::Pooled { .. } => self.pooled,
            Column::Residues(_) => self.residues,
            Column::Logits | Column::LogProbs | Column::LogLikelihood => self.logits,
            Column::Contacts => self.contacts,
        }
    }
}
