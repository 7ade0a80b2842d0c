//! The computed columns of an embeddings file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{AMINO_ACIDS, Pooling};
use plmkit_kit::Quoted;

/// The number of tokens in ESM-2's vocabulary, and of values in its logits vectors.
pub const VOCABULARY: usize = 33;

/// The number of values in the vectors of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widths {
    /// In a pooled vector and in that of a residue.
    pub dim: usize,
    /// In the logits of a residue.
    pub logits: usize,
}

/// A computed column. Layer 0 is the scaled token embedding. Layer i is the residual stream after transformer layer i; the last one
/// is after the final `LayerNorm`, as in fair-esm's `representations`.
///
/// Shapes are for a row of `L` residues. Only a pooled `bos` contains `<cls>`; no column contains `<eos>`.
///
/// ```
/// use plmkit_contract::Column;
/// for name in ["mean_33", "residues_33", "logits", "contacts", "log_probs", "log_likelihood"] {
///     assert_eq!(name.parse::<Column>().unwrap().to_string(), name);
/// }
/// assert!("residues_033".parse::<Column>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// One vector, named `<pool>_<layer>`: `(dim)`.
    Pooled {
        /// The pooling.
        pool: Pooling,
        /// The layer.
        layer: u32,
    },
    /// The output of this layer for each residue: `(L, dim)`.
    Residues(u32),
    /// The output of the language-model head for each residue, before softmax: `(L, logits)`.
    Logits,
    /// The probabilities that two residues are in contact: `(L, L)`, symmetric, row-major.
    Contacts,
    /// The logarithm of the probability of each of [`AMINO_ACIDS`] at each residue, by the logits of these alone: `(L, 20)`.
    LogProbs,
    /// The mean of the log-probabilities of the protein's own amino acids: one value, or null if it has none of the twenty.
    LogLikelihood,
}

impl Column {
    /// Returns the column of the model that this one is made of.
    #[must_use]
    pub fn source(self) -> Self {
        match self {
            Self::LogProbs | Self::LogLikelihood => Self::Logits,
            other => other,
        }
    }

    /// Returns the layer of the column; `None` for logits and what is made of them (last layer) and contacts (all layers).
    pub fn layer(self) -> Option<u32> {
        match self {
            Self::Pooled { layer, .. } | Self::Residues(layer) => Some(layer),
            Self::Logits | Self::Contacts | Self::LogProbs | Self::LogLikelihood => None,
        }
    }

    /// Returns the number of layers that the column needs, in a model of `layers`.
    pub fn depth(self, layers: usize) -> usize {
        self.layer().map_or(layers, |layer| layer as usize)
    }

    /// Returns the number of values in a row of `residues`.
    pub fn values(self, residues: usize, widths: Widths) -> usize {
        match self {
            Self::Pooled { .. } => widths.dim,
            Self::Residues(_) => residues * widths.dim,
            Self::Logits => residues * widths.logits,
            Self::Contacts => residues * residues,
            Self::LogProbs => residues * AMINO_ACIDS.len(),
            Self::LogLikelihood => 1,
        }
    }

    /// Formats the name with the shape of a row of `L` residues: `mean_33 (1280)`, `logits (L x 33)`.
    pub fn with_shape(self, widths: Widths) -> String {
        let Widths { dim, logits } = widths;
        match self {
            Self::Pooled { .. } => format!("{self} ({dim})"),
            Self::Residues(_) => format!("{self} (L x {dim})"),
            Self::Logits => format!("{self} (L x {logits})"),
            Self::Contacts => format!("{self} (L x L)"),
            Self::LogProbs => format!("{self} (L x {})", AMINO_ACIDS.len()),
            Self::LogLikelihood => self.to_string(),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pooled { pool, layer } => write!(f, "{pool}_{layer}"),
            Self::Residues(layer) => write!(f, "residues_{layer}"),
            Self::Logits => f.write_str("logits"),
            Self::Contacts => f.write_str("contacts"),
            Self::LogProbs => f.write_str("log_probs"),
            Self::LogLikelihood => f.write_str("log_likelihood"),
        }
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let column = text.parse();
        column
            .map_err(|()| de::Error::custom(format_args!("no column is called {}", Quoted(&text))))
    }
}

impl FromStr for Column {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let column = match text {
            "logits" => Self::Logits,
            "contacts" => Self::Contacts,
            "log_probs" => Self::LogProbs,
            "log_likelihood" => Self::LogLikelihood,
            _ => {
                let (name, layer) = text.split_once('_').ok_or(())?;
                let layer = layer.parse().map_err(|_| ())?;
                match name {
                    "residues" => Self::Residues(layer),
                    pool => Self::Pooled {
                        pool: pool.parse().map_err(|_| ())?,
                        layer,
                    },
                }
            }
        };
        // "+3" and "03" parse as numbers but are never written.
        (column.to_string() == text).then_some(column).ok_or(())
    }
}
