//! The vector columns of an embeddings file.

use std::fmt;
use std::str::FromStr;

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

/// The way in which the residue vectors of a sequence become one vector. Only [`Pooling::Bos`] uses `<cls>`; none uses `<eos>`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::EnumString,
)]
#[strum(serialize_all = "lowercase")]
pub enum Pooling {
    /// The mean over residues.
    Mean,
    /// The maximum over residues, per channel.
    Max,
    /// The population standard deviation over residues, per channel (divisor n; 0 for a single residue).
    Std,
    /// The vector of `<cls>`.
    Bos,
}

impl Pooling {
    /// All poolings, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Max, Self::Std, Self::Bos];
}

/// The stored type of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum StoreDtype {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision: half the size, three significant decimal digits.
    F16,
}

impl StoreDtype {
    /// Returns the Arrow type of one value.
    pub fn arrow(self) -> DataType {
        match self {
            Self::F32 => DataType::Float32,
            Self::F16 => DataType::Float16,
        }
    }

    /// Returns the bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// A vector column: a pooling of one layer's output, named `<pool>_<layer>`.
///
/// Layer 0 is the scaled token embedding. Layer i is the residual stream after transformer layer i; the last one is after
/// the final `LayerNorm`, as in fair-esm's `representations`.
///
/// ```
/// use plmkit_contract::{Pooling, VectorColumn};
/// let column: VectorColumn = "mean_33".parse().unwrap();
/// assert_eq!(column, VectorColumn { pool: Pooling::Mean, layer: 33 });
/// assert_eq!(column.to_string(), "mean_33");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VectorColumn {
    /// The pooling.
    pub pool: Pooling,
    /// The layer.
    pub layer: u32,
}

impl fmt::Display for VectorColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.pool, self.layer)
    }
}

impl FromStr for VectorColumn {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pool, layer) = text.split_once('_').ok_or(())?;
        let column = Self {
            pool: pool.parse().map_err(|_| ())?,
            layer: layer.parse().map_err(|_| ())?,
        };
        // "+3" and "03" parse as numbers but are never written.
        (column.to_string() == text).then_some(column).ok_or(())
    }
}
