//! How vectors are pooled and stored.

use arrow_schema::DataType;
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
